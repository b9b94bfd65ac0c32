package event

import (
	"fmt"
	"time"
)

// AppendRow appends the stored form of a row: version, table, fields.
func AppendRow(b []byte, row Row) []byte {
	e := &encoder{b: append(b, codecVersion, byte(row.Table()))}
	switch x := row.(type) {
	case *InputRow:
		e.bytes(1, x.Digest[:])
		e.disclosure(2, x.Disclosure)
		e.uint(3, uint64(x.Entry))
		e.time(4, x.At)
		e.str(5, string(x.Run))
		e.uint(6, uint64(x.State))
	case *RunRow:
		e.str(1, string(x.Run))
		e.str(2, string(x.Channel))
		e.str(3, string(x.Agent))
		e.endpoint(4, x.Speaker)
		e.disclosure(5, x.Disclosure)
		e.uint(6, uint64(x.Status))
		e.uint(7, uint64(x.Attempt))
		e.uint(8, x.Sequence)
		e.uint(9, uint64(x.First))
		e.uint(10, uint64(x.Last))
		e.time(11, x.Started)
		e.time(12, x.Ended)
		e.str(13, x.Reason)
		e.str(14, x.Code)
		e.str(15, x.Message)
	case *TranscriptRow:
		e.uint(1, uint64(x.Entry))
		e.time(2, x.At)
		e.endpoint(3, x.Speaker)
		e.disclosure(4, x.Disclosure)
		e.str(5, string(x.Run))
		e.str(6, string(x.Input))
		e.str(7, string(x.Output))
		e.uint(8, uint64(x.Modality))
		e.str(9, x.Lang)
		e.str(10, x.Text)
	default:
		panic(fmt.Sprintf("event: no encoding for %T", row))
	}
	return e.b
}

// DecodeRow reads what AppendRow wrote. The result does not alias raw.
func DecodeRow(raw []byte) (Row, error) {
	if len(raw) < 2 {
		return nil, errShort
	}
	if raw[0] != codecVersion {
		return nil, errVersion
	}
	switch Table(raw[1]) {
	case TableInput:
		x := &InputRow{}
		return x, fields(raw[2:], func(f field) (err error) {
			switch f.tag {
			case 1:
				copy(x.Digest[:], f.b)
			case 2:
				x.Disclosure, err = f.disclosure()
			case 3:
				x.Entry = Seq(f.u)
			case 4:
				x.At = f.time()
			case 5:
				x.Run = RunID(f.b)
			case 6:
				x.State = Admission(f.u)
			}
			return err
		})
	case TableRun:
		x := &RunRow{}
		return x, fields(raw[2:], x.field)
	case TableTranscript:
		x := &TranscriptRow{}
		return x, fields(raw[2:], func(f field) (err error) {
			switch f.tag {
			case 1:
				x.Entry = Seq(f.u)
			case 2:
				x.At = f.time()
			case 3:
				x.Speaker, err = f.endpoint()
			case 4:
				x.Disclosure, err = f.disclosure()
			case 5:
				x.Run = RunID(f.b)
			case 6:
				x.Input = InputID(f.b)
			case 7:
				x.Output = OutputID(f.b)
			case 8:
				x.Modality = Modality(f.u)
			case 9:
				x.Lang = f.str()
			case 10:
				x.Text = f.str()
			}
			return err
		})
	}
	return nil, fmt.Errorf("event: unknown table %d of a row", raw[1])
}

func (x *RunRow) field(f field) (err error) {
	switch f.tag {
	case 1:
		x.Run = RunID(f.b)
	case 2:
		x.Channel = ChannelID(f.b)
	case 3:
		x.Agent = AgentID(f.b)
	case 4:
		x.Speaker, err = f.endpoint()
	case 5:
		x.Disclosure, err = f.disclosure()
	case 6:
		x.Status = Status(f.u)
	case 7:
		x.Attempt = uint32(f.u)
	case 8:
		x.Sequence = f.u
	case 9:
		x.First = Seq(f.u)
	case 10:
		x.Last = Seq(f.u)
	case 11:
		x.Started = f.time()
	case 12:
		x.Ended = f.time()
	case 13:
		x.Reason = f.str()
	case 14:
		x.Code = f.str()
	case 15:
		x.Message = f.str()
	}
	return err
}

// Millis cuts a time to the journal's precision: whole milliseconds, UTC.
func Millis(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }
