/** The choice between the conversation of everyone and one's own, as a list of tabs for mouse, keys and readers. */

/** The two conversations, in the order of the page. */
export const places = ["public", "private"] as const;

/** Which of the two conversations. */
export type Place = (typeof places)[number];

/** Shows one conversation at a time and counts what arrives in the other. */
export class Tabs {
  readonly #chosen: (place: Place) => void;
  readonly #unread = new Map<Place, number>();
  #current: Place = "public";

  constructor(chosen: (place: Place) => void) {
    this.#chosen = chosen;
    for (const place of places) {
      const tab = this.#tab(place);
      tab.addEventListener("click", () => this.choose(place));
      tab.addEventListener("keydown", (event) => {
        const to = this.#byKey(event.key, place);
        if (to === undefined) return;
        event.preventDefault();
        this.choose(to);
        this.#tab(to).focus();
      });
    }
  }

  get current(): Place {
    return this.#current;
  }

  panel(place: Place): HTMLElement {
    return document.getElementById(`panel-${place}`) as HTMLElement;
  }

  choose(place: Place): void {
    this.#current = place;
    for (const each of places) {
      const chosen = each === place;
      this.#tab(each).setAttribute("aria-selected", String(chosen));
      this.#tab(each).tabIndex = chosen ? 0 : -1;
      this.panel(each).hidden = !chosen;
    }
    this.#count(place, 0);
    this.#chosen(place);
  }

  /** Counts something that arrived where nobody looks. */
  arrived(place: Place): void {
    if (place !== this.#current) this.#count(place, (this.#unread.get(place) ?? 0) + 1);
  }

  #count(place: Place, count: number): void {
    this.#unread.set(place, count);
    const badge = this.#tab(place).querySelector<HTMLElement>(".badge");
    if (badge === null) return;
    badge.hidden = count === 0;
    badge.textContent = String(count);
    badge.setAttribute("aria-label", `${count} new`);
  }

  #byKey(key: string, from: Place): Place | undefined {
    const at = places.indexOf(from);
    if (key === "ArrowRight") return places[(at + 1) % places.length];
    if (key === "ArrowLeft") return places[(at + places.length - 1) % places.length];
    if (key === "Home") return places[0];
    if (key === "End") return places[places.length - 1];
    return undefined;
  }

  #tab(place: Place): HTMLElement {
    return document.getElementById(`tab-${place}`) as HTMLElement;
  }
}
