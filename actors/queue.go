package actors

// queue holds the inputs of a room that wait for a decision, in order. Owned by
// the room actor.
type queue struct {
	buf  []item
	head int
}

func (q *queue) len() int { return len(q.buf) - q.head }

func (q *queue) push(x item) { q.buf = append(q.buf, x) }

// front returns the first input. The queue is not empty.
func (q *queue) front() item { return q.buf[q.head] }

// pop takes the first input out.
func (q *queue) pop() {
	q.buf[q.head] = item{}
	if q.head++; q.head == len(q.buf) {
		q.buf, q.head = q.buf[:0], 0
	}
}

// unshift puts inputs in front, in their order.
func (q *queue) unshift(xs ...item) {
	q.buf = append(append(make([]item, 0, len(xs)+q.len()), xs...), q.buf[q.head:]...)
	q.head = 0
}

// keep leaves the inputs for which ok returns true. ok is called once for each, in order.
func (q *queue) keep(ok func(item) bool) {
	var kept []item
	for _, x := range q.buf[q.head:] {
		if ok(x) {
			kept = append(kept, x)
		}
	}
	q.buf, q.head = kept, 0
}
