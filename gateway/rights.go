package gateway

import (
	"slices"
	"strings"
	"sync"

	"parley/event"
)

// maxRights is how many different lists of rights are remembered.
const maxRights = 256

// rights lets tokens that allow the same share the memory of saying so: thousands
// of connections with tokens of one issuer differ in little but the subject, and
// a list of rooms, scopes and channels takes half a kilobyte. Safe for concurrent
// use; mu guards known.
type rights struct {
	mu    sync.Mutex
	known map[string]event.Access // without subject, name and role; shared, so never changed
}

// share replaces the lists of a by equal ones that others have. A rule that names
// the subject has lists of its own.
func (r *rights) share(a *event.Access) {
	for _, c := range a.Channels {
		if slices.Contains(c.Disclosure.Participants, a.Subject) {
			return
		}
	}
	var b strings.Builder
	list := func(n int, at func(int) string) {
		for i := range n {
			s := at(i)
			b.WriteString(s)
			b.WriteByte(0)
		}
		b.WriteByte(1)
	}
	list(len(a.Rooms), func(i int) string { return a.Rooms[i] })
	list(len(a.Scopes), func(i int) string { return string(a.Scopes[i]) })
	for _, c := range a.Channels {
		list(1, func(int) string { return c.Match })
		list(len(c.Can), func(i int) string { return string(c.Can[i]) })
		b.WriteString(c.Disclosure.Kind.String())
		list(len(c.Disclosure.Participants), func(i int) string { return string(c.Disclosure.Participants[i]) })
	}
	key := b.String()
	r.mu.Lock()
	defer r.mu.Unlock()
	have, ok := r.known[key]
	if !ok || !sameRights(have, *a) {
		if r.known == nil || len(r.known) >= maxRights {
			r.known = map[string]event.Access{} // those in use are back soon
		}
		have = event.Access{Rooms: a.Rooms, Scopes: a.Scopes, Channels: a.Channels}
		r.known[key] = have
	}
	a.Rooms, a.Scopes, a.Channels = have.Rooms, have.Scopes, have.Channels
}

// sameRights compares in full: what is written into a key may hold any byte, so
// that two different lists could make one key.
func sameRights(a, b event.Access) bool {
	return slices.Equal(a.Rooms, b.Rooms) && slices.Equal(a.Scopes, b.Scopes) &&
		slices.EqualFunc(a.Channels, b.Channels, func(x, y event.ChannelRule) bool {
			return x.Match == y.Match && slices.Equal(x.Can, y.Can) && x.Disclosure.Equal(y.Disclosure)
		})
}
