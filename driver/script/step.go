package script

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rivo/uniseg"

	"parley/event"
)

// step is one step of a reply. Immutable after Parse; play may run in several
// attempts at once.
type step interface {
	play(p *player) error
}

// emit sends an event that does not depend on the turn.
type emit struct{ body event.RunBody }

func (s emit) play(p *player) error { return p.out.Emit(s.body) }

// complete ends the attempt well.
type complete struct{}

func (complete) play(p *player) error {
	p.over = true
	return p.out.Emit(event.Completed{})
}

// ask ends the attempt and asks for the next input of the speaker.
type ask struct {
	request event.RequestID
	expires time.Duration // 0: the room's wait
}

func (s ask) play(p *player) error {
	p.over = true
	q := event.InputRequested{Request: s.request}
	if s.expires > 0 {
		q.ExpiresAt = time.Now().Add(s.expires)
	}
	return p.out.Emit(q)
}

// say sends the deltas of one output.
type say struct {
	output event.AssistantOutput // what its deltas have in common
	text   string
	deltas []string // instead of text
	chunk  int      // 0: the text is one delta
	every  time.Duration
	final  bool

	// made has the finished events of a step that names its output and has no
	// placeholder, so that playing it allocates nothing; nil for any other.
	made []event.RunBody
}

// placeholders are what say replaces in its texts and in its output id.
const (
	placeText    = "{text}"    // the input's text
	placeRound   = "{round}"   // of the innermost repeat, from 1; 0 outside
	placeAttempt = "{attempt}" // of the run, from 1
)

// prepare makes the events in advance where that is possible.
func (s *say) prepare() {
	all := string(s.output.Output) + s.text + strings.Join(s.deltas, "")
	if s.output.Output == "" || strings.Contains(all, placeText) || strings.Contains(all, placeRound) || strings.Contains(all, placeAttempt) {
		return
	}
	s.made = s.bodies(s.output.Output, func(t string) string { return t })
}

func (s *say) play(p *player) error {
	bodies := s.made
	if bodies == nil {
		fill := strings.NewReplacer(placeText, p.turn.Text, placeRound, strconv.Itoa(p.round),
			placeAttempt, strconv.FormatUint(uint64(p.turn.Attempt), 10)).Replace
		id := event.OutputID(fill(string(s.output.Output)))
		if id == "" {
			p.said++
			id = event.OutputID(fmt.Sprintf("say-%d", p.said))
		}
		bodies = s.bodies(id, fill)
	}
	for i, b := range bodies {
		if i > 0 {
			if err := p.pause(s.every); err != nil {
				return err
			}
		}
		if err := p.out.Emit(b); err != nil {
			return err
		}
	}
	return nil
}

func (s *say) bodies(id event.OutputID, fill func(string) string) []event.RunBody {
	var texts []string
	switch {
	case s.deltas != nil:
		for _, d := range s.deltas {
			texts = append(texts, fill(d))
		}
	case s.chunk > 0:
		texts = chunks(fill(s.text), s.chunk)
	default:
		texts = []string{fill(s.text)}
	}
	bodies := make([]event.RunBody, len(texts))
	for i, t := range texts {
		b := s.output
		b.Output, b.Delta = id, t
		b.Final = s.final && i == len(texts)-1
		bodies[i] = b
	}
	return bodies
}

// chunks cuts a text into pieces of at most n characters as a reader sees them,
// after white space where there is some. An empty text is one empty piece.
func chunks(text string, n int) []string {
	var pieces []string
	for {
		count, size, space := 0, 0, 0
		rest, state := text, -1
		for rest != "" && count < n {
			var cluster string
			cluster, rest, _, state = uniseg.FirstGraphemeClusterInString(rest, state)
			count++
			size += len(cluster)
			if strings.TrimSpace(cluster) == "" {
				space = size
			}
		}
		if rest == "" {
			return append(pieces, text)
		}
		if space > 0 {
			size = space
		}
		pieces = append(pieces, text[:size])
		text = text[size:]
	}
}

// fail returns an error.
type fail struct{ err error }

func (s fail) play(*player) error { return s.err }

// crash panics.
type crash struct{ text string }

func (s crash) play(*player) error { panic("script: " + s.text) }

// wait pauses and heeds the context.
type wait struct{ d time.Duration }

func (s wait) play(p *player) error { return p.pause(s.d) }

// hang ignores the context until d has passed or the driver is released.
type hang struct{ d time.Duration } // 0: until released

func (s hang) play(p *player) error {
	if s.d == 0 {
		<-p.released
		return nil
	}
	t := time.NewTimer(s.d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.released:
	}
	return nil
}

// repeat plays its steps several times.
type repeat struct {
	times int
	steps []step
}

func (s repeat) play(p *player) error {
	outer := p.round
	defer func() { p.round = outer }()
	for p.round = 1; p.round <= s.times; p.round++ {
		if p.ctx.Err() != nil {
			return p.pause(0)
		}
		if err := p.play(s.steps); err != nil || p.over {
			return err
		}
	}
	return nil
}
