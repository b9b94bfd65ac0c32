package gateway

import (
	"parley/event"
	"parley/gateway/wire"
)

// lens is through what a connection sees its room: its present claims, the
// channels and kinds that it asked for. Immutable; a refresh or a subscribe
// makes a new one.
type lens struct {
	token  *Token
	viewer wire.Viewer
	asked  []asked
	index  map[event.ChannelID]int // into asked, when there are too many to search
	all    bool                    // a host that named no channels
	kinds  map[string]bool         // nil: all
	hash   uint32
	can    []wire.Right
}

// asked is a channel that was asked for.
type asked struct {
	channel event.ChannelID
	since   event.Seq // the channel counts after this position
	read    bool      // by the present claims
}

// searched is how many channels are searched one by one: below that a map costs
// more memory and no less time.
const searched = 8

// newLens looks with fresh claims at what was asked for. It takes list over.
func newLens(t *Token, list []asked, all bool, kinds map[string]bool) *lens {
	l := &lens{
		token: t, viewer: wire.Viewer{Subject: t.Access.Subject, Host: t.Access.Host()},
		asked: list, all: all, kinds: kinds,
	}
	readable := make([]event.ChannelID, 0, len(list))
	if len(list) > searched {
		l.index = make(map[event.ChannelID]int, len(list))
	}
	for i := range list {
		a := &list[i]
		g := t.Access.On(a.channel)
		if a.read = g.May(event.ScopeRead); a.read {
			readable = append(readable, a.channel)
		}
		if len(g.Can) > 0 {
			l.can = append(l.can, wire.Right{Channel: a.channel, Can: g.Can})
		}
		if l.index != nil {
			l.index[a.channel] = i
		}
	}
	l.hash = wire.ChannelsHash(readable, all)
	return l
}

// empty reports whether no channel is left of those asked for.
func (l *lens) empty() bool { return !l.all && len(l.can) == 0 }

// find returns a channel that was asked for; nil for another.
func (l *lens) find(ch event.ChannelID) *asked {
	if l.index != nil {
		if i, ok := l.index[ch]; ok {
			return &l.asked[i]
		}
		return nil
	}
	for i := range l.asked {
		if l.asked[i].channel == ch {
			return &l.asked[i]
		}
	}
	return nil
}

// sees reports whether an entry belongs into the stream. It agrees with
// event.Access.Sees on the channels asked for, at the price of one look-up.
func (l *lens) sees(e *event.Entry) bool {
	if l.kinds != nil && !l.kinds[wire.KindOf(e)] {
		return false
	}
	if e.Channel != "" && !l.all {
		if a := l.find(e.Channel); a == nil || !a.read || e.Seq <= a.since {
			return false
		}
	}
	return l.viewer.Host || e.Disclosure.Includes(l.viewer.Subject)
}

// shows reports whether a part of a view belongs into the state.
func (l *lens) shows(ch event.ChannelID, d event.Disclosure) bool {
	if !l.all {
		if a := l.find(ch); a == nil || !a.read {
			return false
		}
	}
	return l.viewer.Host || d.Includes(l.viewer.Subject)
}
