/** Waiting between tries of a connection: jittered, growing, and bounded by a budget that progress restores (K5). */

/** Shortest wait, in milliseconds. */
export const MIN_WAIT_MS = 300;

/** Longest wait, in milliseconds. */
export const MAX_WAIT_MS = 20_000;

/** Tries without progress before a client gives up, unless it is told another number. */
export const DEFAULT_BUDGET = 30;

/** Counts tries and draws the waits between them. Owned by one machine. */
export class Backoff {
  readonly #budget: number;
  readonly #random: () => number;
  #tries = 0;

  /**
   * @param budget Tries without progress that are allowed, at least 1.
   * @param random Source of numbers in [0, 1).
   */
  constructor(budget: number, random: () => number) {
    this.#budget = budget;
    this.#random = random;
  }

  /**
   * Takes one try from the budget and answers the wait before it in milliseconds, drawn evenly from
   * [{@link MIN_WAIT_MS}, the ceiling), where the ceiling doubles with each try up to {@link MAX_WAIT_MS}.
   * Answers `undefined` when the budget is used up.
   */
  next(): number | undefined {
    if (this.#tries >= this.#budget) return undefined;
    this.#tries++;
    const ceiling = Math.min(MAX_WAIT_MS, MIN_WAIT_MS * 2 ** Math.min(this.#tries, 16));
    return MIN_WAIT_MS + Math.floor(this.#random() * (ceiling - MIN_WAIT_MS));
  }

  /** Whether nothing of the budget is used. */
  get untouched(): boolean {
    return this.#tries === 0;
  }

  /** Restores the whole budget and the shortest wait. */
  progress(): void {
    this.#tries = 0;
  }
}
