package event

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// AppendEntry appends the journaled form of an entry, without its position,
// which is its key: version, kind, fields.
func AppendEntry(b []byte, en *Entry) []byte {
	e := &encoder{b: append(b, codecVersion, byte(en.Body.Kind()))}
	e.time(1, en.At)
	e.str(2, string(en.Channel))
	e.disclosure(3, en.Disclosure)
	switch x := en.Body.(type) {
	case *InputAdmitted:
		e.input(x)
	case *RunEvent:
		e.runEvent(x)
	case *RoomConfigured:
		raw, err := json.Marshal(x.Config)
		if err != nil {
			panic(fmt.Sprintf("event: a room configuration does not encode: %T", err))
		}
		e.bytes(16, raw)
		e.str(17, string(x.By))
		e.uint(18, uint64(x.Incarnation))
	case *FocusSet:
		e.str(16, string(x.Subject))
		e.str(17, string(x.Agent))
	case *Drained:
	default:
		panic(fmt.Sprintf("event: no encoding for %T", en.Body))
	}
	return e.b
}

// DecodeEntry reads what AppendEntry wrote. The result does not alias raw.
func DecodeEntry(at Seq, raw []byte) (*Entry, error) {
	if len(raw) < 2 {
		return nil, errShort
	}
	if raw[0] != codecVersion {
		return nil, errVersion
	}
	en := &Entry{Seq: at}
	var body func(field) error
	finish := func() error { return nil }
	switch Kind(raw[1]) {
	case KindInput:
		x := &InputAdmitted{}
		en.Body, body = x, x.field
	case KindRun:
		x := &RunEvent{}
		en.Body = x
		body, finish = x.decoder()
	case KindRoom:
		x := &RoomConfigured{}
		en.Body = x
		body = func(f field) error {
			switch f.tag {
			case 16:
				// What json says quotes the value.
				if json.Unmarshal(f.b, &x.Config) != nil {
					return fmt.Errorf("event: a room configuration of %d bytes does not decode", len(f.b))
				}
			case 17:
				x.By = ParticipantID(f.b)
			case 18:
				x.Incarnation = Incarnation(f.u)
			}
			return nil
		}
	case KindFocus:
		x := &FocusSet{}
		en.Body = x
		body = func(f field) error {
			switch f.tag {
			case 16:
				x.Subject = ParticipantID(f.b)
			case 17:
				x.Agent = AgentID(f.b)
			}
			return nil
		}
	case KindDrained:
		en.Body, body = &Drained{}, func(field) error { return nil }
	default:
		return nil, fmt.Errorf("event: entry %d has the unknown kind %d", at, raw[1])
	}
	err := fields(raw[2:], func(f field) (err error) {
		switch f.tag {
		case 1:
			en.At = f.time()
		case 2:
			en.Channel = ChannelID(f.b)
		case 3:
			en.Disclosure, err = f.disclosure()
		default:
			err = body(f)
		}
		return err
	})
	if err = errors.Join(err, finish()); err != nil {
		return nil, fmt.Errorf("entry %d: %w", at, err)
	}
	return en, nil
}

func (e *encoder) input(x *InputAdmitted) {
	e.str(16, string(x.Input))
	e.endpoint(17, x.Speaker)
	e.str(18, string(x.By))
	e.str(19, x.Text)
	e.uint(20, uint64(x.Modality))
	e.str(21, x.Lang)
	e.time(22, x.EndedAt)
	e.str(23, string(x.Agent))
	e.str(24, string(x.Run))
	e.uint(25, uint64(x.State))
	e.bytes(26, x.Digest[:])
	e.uint(27, uint64(x.Budget.Milliseconds()))
	e.disclosure(28, x.RunDisclosure)
	e.str(29, x.AgentVersion)
	e.str(30, string(x.Recovery))
}

func (x *InputAdmitted) field(f field) (err error) {
	switch f.tag {
	case 16:
		x.Input = InputID(f.b)
	case 17:
		x.Speaker, err = f.endpoint()
	case 18:
		x.By = ParticipantID(f.b)
	case 19:
		x.Text = f.str()
	case 20:
		x.Modality = Modality(f.u)
	case 21:
		x.Lang = f.str()
	case 22:
		x.EndedAt = f.time()
	case 23:
		x.Agent = AgentID(f.b)
	case 24:
		x.Run = RunID(f.b)
	case 25:
		x.State = Admission(f.u)
	case 26:
		copy(x.Digest[:], f.b)
	case 27:
		x.Budget = time.Duration(f.u) * time.Millisecond
	case 28:
		x.RunDisclosure, err = f.disclosure()
	case 29:
		x.AgentVersion = f.str()
	case 30:
		x.Recovery = Recovery(f.b)
	}
	return err
}

func (e *encoder) runEvent(x *RunEvent) {
	e.str(16, string(x.Run))
	e.str(17, string(x.Agent))
	e.str(18, string(x.Input))
	e.uint(19, uint64(x.Attempt))
	e.uint(20, x.Sequence)
	e.uint(21, x.N)
	e.str(22, string(x.Logical))
	e.bool(23, x.Runtime)
	e.uint(24, uint64(x.Event.RunKind()))
	at := e.begin(25)
	e.runBody(x.Event)
	e.end(at)
}

// decoder returns a function that takes the fields of x, and one that makes the
// event of them, since its kind and its fields may come in any order.
func (x *RunEvent) decoder() (take func(field) error, finish func() error) {
	var kind RunKind
	var raw []byte
	take = func(f field) error {
		switch f.tag {
		case 16:
			x.Run = RunID(f.b)
		case 17:
			x.Agent = AgentID(f.b)
		case 18:
			x.Input = InputID(f.b)
		case 19:
			x.Attempt = uint32(f.u)
		case 20:
			x.Sequence = f.u
		case 21:
			x.N = f.u
		case 22:
			x.Logical = OutputID(f.b)
		case 23:
			x.Runtime = f.u == 1
		case 24:
			kind = RunKind(f.u)
		case 25:
			raw = f.b
		}
		return nil
	}
	finish = func() (err error) {
		x.Event, err = decodeRunBody(kind, raw)
		return err
	}
	return take, finish
}

func (e *encoder) runBody(body RunBody) {
	switch x := body.(type) {
	case Progress:
		e.str(1, x.Stage)
		if x.Current != nil {
			e.uint(2, zigzag(*x.Current)+1)
		}
		if x.Total != nil {
			e.uint(3, zigzag(*x.Total)+1)
		}
		e.str(4, x.Unit)
		e.str(5, x.Message)
	case AssistantOutput:
		e.str(1, string(x.Output))
		e.str(2, x.Delta)
		e.bool(3, x.Final)
		e.uint(4, uint64(x.Purpose))
		e.uint(5, uint64(x.History))
		e.disclosure(6, x.Audience)
		if x.Interruptible != nil {
			e.uint(7, map[bool]uint64{false: 1, true: 2}[*x.Interruptible])
		}
		e.str(8, x.Lang)
		e.str(9, x.Spoken)
	case Checkpoint:
		e.bytes(1, x.Value)
	case InputRequested:
		e.str(1, string(x.Request))
		e.str(2, x.Token)
		e.time(3, x.ExpiresAt)
		e.endpoint(4, x.Speaker)
	case Decision:
		for _, u := range x.Utterances {
			at := e.begin(1)
			e.str(1, u.Text)
			e.disclosure(2, u.Audience)
			e.str(3, u.Lang)
			e.end(at)
		}
	case Completed, DeadlineExceeded:
	case AttemptStarted:
		e.bool(1, x.Resumed)
	case RunCanceled:
		e.str(1, x.Reason)
		e.str(2, string(x.By))
	case RunFailed:
		e.str(1, x.Code)
		e.str(2, x.Message)
	case RunBlocked:
		e.str(1, x.Step)
		e.str(2, x.Reason)
	default:
		panic(fmt.Sprintf("event: no encoding for %T", body))
	}
}

func decodeRunBody(kind RunKind, raw []byte) (RunBody, error) {
	switch kind {
	case KindProgress:
		var x Progress
		err := fields(raw, func(f field) error {
			switch f.tag {
			case 1:
				x.Stage = f.str()
			case 2:
				x.Current = new(unzigzag(f.u - 1))
			case 3:
				x.Total = new(unzigzag(f.u - 1))
			case 4:
				x.Unit = f.str()
			case 5:
				x.Message = f.str()
			}
			return nil
		})
		return x, err
	case KindAssistantOutput:
		var x AssistantOutput
		err := fields(raw, func(f field) (err error) {
			switch f.tag {
			case 1:
				x.Output = OutputID(f.b)
			case 2:
				x.Delta = f.str()
			case 3:
				x.Final = f.u == 1
			case 4:
				x.Purpose = Purpose(f.u)
			case 5:
				x.History = History(f.u)
			case 6:
				x.Audience, err = f.disclosure()
			case 7:
				x.Interruptible = new(f.u == 2)
			case 8:
				x.Lang = f.str()
			case 9:
				x.Spoken = f.str()
			}
			return err
		})
		return x, err
	case KindCheckpoint:
		var x Checkpoint
		err := fields(raw, func(f field) error {
			if f.tag == 1 {
				x.Value = append(json.RawMessage(nil), f.b...)
			}
			return nil
		})
		return x, err
	case KindInputRequested:
		var x InputRequested
		err := fields(raw, func(f field) (err error) {
			switch f.tag {
			case 1:
				x.Request = RequestID(f.b)
			case 2:
				x.Token = f.str()
			case 3:
				x.ExpiresAt = f.time()
			case 4:
				x.Speaker, err = f.endpoint()
			}
			return err
		})
		return x, err
	case KindDecision:
		var x Decision
		err := fields(raw, func(f field) error {
			if f.tag != 1 {
				return nil
			}
			var u Utterance
			err := fields(f.b, func(f field) (err error) {
				switch f.tag {
				case 1:
					u.Text = f.str()
				case 2:
					u.Audience, err = f.disclosure()
				case 3:
					u.Lang = f.str()
				}
				return err
			})
			x.Utterances = append(x.Utterances, u)
			return err
		})
		return x, err
	case KindCompleted:
		return Completed{}, nil
	case KindAttemptStarted:
		var x AttemptStarted
		err := fields(raw, func(f field) error {
			if f.tag == 1 {
				x.Resumed = f.u == 1
			}
			return nil
		})
		return x, err
	case KindRunCanceled:
		var x RunCanceled
		err := fields(raw, func(f field) error {
			switch f.tag {
			case 1:
				x.Reason = f.str()
			case 2:
				x.By = ParticipantID(f.b)
			}
			return nil
		})
		return x, err
	case KindDeadlineExceeded:
		return DeadlineExceeded{}, nil
	case KindRunFailed:
		var x RunFailed
		err := fields(raw, func(f field) error {
			switch f.tag {
			case 1:
				x.Code = f.str()
			case 2:
				x.Message = f.str()
			}
			return nil
		})
		return x, err
	case KindRunBlocked:
		var x RunBlocked
		err := fields(raw, func(f field) error {
			switch f.tag {
			case 1:
				x.Step = f.str()
			case 2:
				x.Reason = f.str()
			}
			return nil
		})
		return x, err
	}
	return nil, fmt.Errorf("event: unknown kind %d of run event", kind)
}

func zigzag(v int64) uint64   { return uint64(v<<1) ^ uint64(v>>63) }
func unzigzag(u uint64) int64 { return int64(u>>1) ^ -int64(u&1) }
