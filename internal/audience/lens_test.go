package audience

import (
	"slices"
	"strings"

	"parley/event"
)

// lens is what a viewer may see at one time: its claims, and the channels that
// it asked for, each from a position on. It is written from the protocol's
// words and uses nothing of the rules that it is compared with.
type lens struct {
	sub    event.ParticipantID
	access event.Access
	asked  map[event.ChannelID]event.Seq // what is after this position counts
	kinds  []string                      // nil: all
}

// grants returns the rule that decides for a channel; false when there is none.
func grants(a event.Access, ch event.ChannelID) (event.ChannelRule, bool) {
	for _, r := range a.Channels {
		pattern := strings.Split(strings.ReplaceAll(r.Match, "{sub}", string(a.Subject)), ":")
		name := strings.Split(string(ch), ":")
		fits := true
		for i, p := range pattern {
			if p == "**" {
				fits = fits && len(name) > i
				name = name[:min(i, len(name))]
				pattern = pattern[:i]
				break
			}
			fits = fits && i < len(name) && (p == "*" || p == name[i])
		}
		if fits && len(name) == len(pattern) {
			return r, true
		}
	}
	return event.ChannelRule{}, false
}

func may(a event.Access, ch event.ChannelID, scope event.Scope) bool {
	r, ok := grants(a, ch)
	return ok && slices.Contains(r.Can, scope) && slices.Contains(a.Scopes, scope)
}

func mayAny(a event.Access, ch event.ChannelID) bool {
	for _, s := range []event.Scope{event.ScopeRead, event.ScopeInput, event.ScopeCancel, event.ScopeModerate} {
		if may(a, ch, s) {
			return true
		}
	}
	return false
}

func includes(d event.Disclosure, sub event.ParticipantID) bool {
	return d.Kind == event.DiscloseRoom || d.Kind == event.DiscloseParticipants && slices.Contains(d.Participants, sub)
}

// shows reports whether a thing on a channel is for the viewer.
func (l lens) shows(ch event.ChannelID, d event.Disclosure) bool {
	_, asked := l.asked[ch]
	return asked && may(l.access, ch, event.ScopeRead) && includes(d, l.sub)
}

// sees reports whether the stream holds an entry.
func (l lens) sees(e *event.Entry) bool {
	kind := "room"
	switch x := e.Body.(type) {
	case *event.InputAdmitted:
		kind = "input"
	case *event.RunEvent:
		kind = "run.event"
		switch x.Event.(type) {
		case event.Checkpoint, event.Decision:
			return false // never public
		}
	case *event.FocusSet:
		if x.Subject != l.sub {
			return false
		}
	case *event.Drained:
		return false
	}
	if l.kinds != nil && !slices.Contains(l.kinds, kind) {
		return false
	}
	if e.Channel == "" {
		return includes(e.Disclosure, l.sub)
	}
	return l.shows(e.Channel, e.Disclosure) && e.Seq > l.asked[e.Channel]
}

// subscribed returns the lens after more channels, which count from now on.
func (l lens) subscribed(channels []event.ChannelID, now event.Seq) lens {
	was := l.asked
	l.asked = map[event.ChannelID]event.Seq{}
	for ch, since := range was {
		l.asked[ch] = since
	}
	for _, ch := range channels {
		if _, had := was[ch]; !had && mayAny(l.access, ch) {
			l.asked[ch] = now
		}
	}
	return l
}

// refreshed returns the lens after a new token; what it opens counts from now on.
func (l lens) refreshed(a event.Access, now event.Seq) lens {
	was := l.asked
	l.asked = map[event.ChannelID]event.Seq{}
	for ch, since := range was {
		if may(a, ch, event.ScopeRead) && !may(l.access, ch, event.ScopeRead) {
			since = now
		}
		l.asked[ch] = since
	}
	l.access = a
	return l
}

// blind reports whether the token allows nothing on any channel that was asked for.
func (l lens) blind() bool {
	for ch := range l.asked {
		if mayAny(l.access, ch) {
			return false
		}
	}
	return true
}
