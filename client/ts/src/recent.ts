/** A set that remembers the newest members only, so that a long life does not grow without end. */
export class RecentSet {
  readonly #members = new Set<string>();
  readonly #limit: number;

  /** @param limit Members that are remembered, at least 1. */
  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Adds a member, and forgets the oldest when there are too many. */
  add(member: string): void {
    this.#members.add(member);
    if (this.#members.size > this.#limit) {
      const oldest = this.#members.values().next();
      if (oldest.done !== true) this.#members.delete(oldest.value);
    }
  }

  /** Whether the member is remembered. */
  has(member: string): boolean {
    return this.#members.has(member);
  }

  /** Forgets one member. */
  delete(member: string): void {
    this.#members.delete(member);
  }

  /** Forgets all. */
  clear(): void {
    this.#members.clear();
  }

  /** The newest `count` members, oldest first. */
  newest(count: number): string[] {
    return [...this.#members].slice(-count);
  }
}
