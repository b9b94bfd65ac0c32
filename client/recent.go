package client

// recent is a set that remembers its newest members only, so that a long life
// does not grow without end. Owned by one Machine.
type recent struct {
	members map[string]uint64 // member to the number of its last addition
	order   []addition        // a ring, oldest at head
	head    int
	added   uint64
}

type addition struct {
	member string
	number uint64
}

func newRecent(limit int) *recent {
	return &recent{members: make(map[string]uint64), order: make([]addition, 0, limit)}
}

func (r *recent) has(s string) bool { _, ok := r.members[s]; return ok }

// add remembers s, which is not in the set, and forgets the oldest when there are too many.
func (r *recent) add(s string) {
	r.added++
	r.members[s] = r.added
	a := addition{s, r.added}
	if len(r.order) < cap(r.order) {
		r.order = append(r.order, a)
		return
	}
	// What was forgotten on request and added again has a newer number, which stays.
	if old := r.order[r.head]; r.members[old.member] == old.number {
		delete(r.members, old.member)
	}
	r.order[r.head] = a
	r.head = (r.head + 1) % len(r.order)
}

func (r *recent) forget(s string) { delete(r.members, s) }

func (r *recent) clear() {
	clear(r.members)
	r.order = r.order[:0]
	r.head = 0
}
