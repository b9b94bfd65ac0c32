package event

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"pgregory.net/rapid"
)

// bodies and runBodies hold one zero value of every kind. A test holds that
// none is missing.
var bodies = []Body{&InputAdmitted{}, &RunEvent{}, &RoomConfigured{}, &FocusSet{}, &Drained{}}

var runBodies = []RunBody{
	Progress{},
	AssistantOutput{},
	Checkpoint{},
	InputRequested{},
	Decision{},
	Completed{},
	AttemptStarted{},
	RunCanceled{},
	DeadlineExceeded{},
	RunFailed{},
	RunBlocked{},
}

var rows = []Row{&InputRow{}, &RunRow{}, &TranscriptRow{}}

var (
	typeTime       = reflect.TypeFor[time.Time]()
	typeDuration   = reflect.TypeFor[time.Duration]()
	typeDisclosure = reflect.TypeFor[Disclosure]()
	typeRunBody    = reflect.TypeFor[RunBody]()
	typeRaw        = reflect.TypeFor[json.RawMessage]()
	typeConfig     = reflect.TypeFor[RoomConfig]()
	typeBusy       = reflect.TypeFor[BusyPolicy]()
)

// filler makes values by their type, so that a member that is added to a kind
// is tested without a line here.
type filler struct {
	t *rapid.T // nil: every member gets a value of its own that is not zero
	n int
	// json: the value is stored as JSON, which keeps valid UTF-8 only.
	json bool
}

func (f *filler) fill(v reflect.Value) {
	switch v.Type() {
	case typeTime:
		// The journal holds whole milliseconds; 1970 itself stands for "not given".
		if ms := f.int(0, 1<<42); ms != 0 {
			v.Set(reflect.ValueOf(time.UnixMilli(ms).UTC()))
		}
		return
	case typeDuration:
		v.SetInt(f.int(0, 1<<40) * int64(time.Millisecond))
		return
	case typeDisclosure:
		v.Set(reflect.ValueOf(f.disclosure()))
		return
	case typeRaw:
		if f.bool() {
			v.SetBytes(fmt.Appendf(nil, `{"a":%d}`, f.int(1, 1<<50)))
		}
		return
	case typeBusy:
		v.SetUint(uint64(f.int(0, int64(BusyReject))))
		return
	case typeRunBody:
		body := reflect.New(reflect.TypeOf(runBodies[f.index(len(runBodies))])).Elem()
		f.fill(body)
		v.Set(body)
		return
	case typeConfig:
		f.json = true
		defer func() { f.json = false }()
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f.fill(v.Field(i))
		}
	case reflect.Pointer:
		if f.bool() {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem())
		}
	case reflect.Slice:
		if n := f.index(4); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				f.fill(v.Index(i))
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			f.fill(v.Index(i))
		}
	case reflect.Map:
		if n := f.index(4); n > 0 {
			v.Set(reflect.MakeMap(v.Type()))
			for range n {
				key, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
				f.fill(key)
				f.fill(elem)
				v.SetMapIndex(key, elem)
			}
		}
	case reflect.String:
		v.SetString(f.string())
	case reflect.Bool:
		v.SetBool(f.bool())
	case reflect.Int64:
		v.SetInt(f.int(-1<<53, 1<<53)) // what E6 lets through
	case reflect.Uint8:
		v.SetUint(uint64(f.int(0, 200)))
	case reflect.Uint32:
		v.SetUint(uint64(f.int(0, 1<<32-1)))
	case reflect.Uint64:
		v.SetUint(uint64(f.int(0, 1<<62)))
	default:
		panic(fmt.Sprintf("no filler for %s", v.Type()))
	}
}

func (f *filler) int(lo, hi int64) int64 {
	if f.t != nil {
		return rapid.Int64Range(lo, hi).Draw(f.t, "n")
	}
	f.n++
	return min(hi, int64(f.n))
}

func (f *filler) index(n int) int {
	if f.t != nil {
		return rapid.IntRange(0, n-1).Draw(f.t, "i")
	}
	return min(n-1, 2)
}

func (f *filler) bool() bool { return f.t == nil || rapid.Bool().Draw(f.t, "b") }

func (f *filler) string() string {
	switch {
	case f.t == nil:
		f.n++
		return fmt.Sprintf("text %d ß", f.n)
	case f.json:
		return rapid.String().Draw(f.t, "s")
	}
	return string(rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(f.t, "s"))
}

func (f *filler) disclosure() Disclosure {
	if f.t != nil {
		return drawDisclosure(f.t)
	}
	f.n++
	return ToParticipants(ParticipantID(fmt.Sprintf("p-%d", f.n)), "p-0")
}

// drawDisclosure draws from few people, so that lists overlap.
func drawDisclosure(t *rapid.T) Disclosure {
	switch DisclosureKind(rapid.IntRange(0, 3).Draw(t, "kind")) {
	case DiscloseNone:
		return ToNone()
	case DiscloseRoom:
		return ToRoom()
	case DiscloseParticipants:
		return ToParticipants(rapid.SliceOfN(rapid.SampledFrom([]ParticipantID{"ann", "bob", "cem", "dee"}), 1, 5).Draw(t, "ids")...)
	}
	return Disclosure{}
}

// filled returns one entry or row of every kind with every member set.
func filledEntries() (all []*Entry) {
	add := func(body Body) {
		en := &Entry{Seq: 300}
		f := &filler{}
		f.fill(reflect.ValueOf(&en.At).Elem())
		f.fill(reflect.ValueOf(&en.Channel).Elem())
		f.fill(reflect.ValueOf(&en.Disclosure).Elem())
		f.fill(reflect.ValueOf(body).Elem())
		en.Body = body
		all = append(all, en)
	}
	for _, b := range bodies {
		if _, is := b.(*RunEvent); !is {
			add(fresh(b).(Body))
		}
	}
	for _, rb := range runBodies {
		x := &RunEvent{}
		add(x)
		body := reflect.New(reflect.TypeOf(rb)).Elem()
		(&filler{n: 100}).fill(body)
		x.Event = body.Interface().(RunBody)
	}
	return all
}

func filledRows() (all []Row) {
	for _, r := range rows {
		x := fresh(r).(Row)
		(&filler{}).fill(reflect.ValueOf(x).Elem())
		all = append(all, x)
	}
	return all
}

// fresh returns a pointer to a new zero value of what p points to.
func fresh(p any) any { return reflect.New(reflect.TypeOf(p).Elem()).Interface() }

func drawEntry(t *rapid.T) *Entry {
	f := &filler{t: t}
	en := &Entry{Seq: Seq(rapid.Uint64().Draw(t, "seq"))}
	f.fill(reflect.ValueOf(&en.At).Elem())
	f.fill(reflect.ValueOf(&en.Channel).Elem())
	f.fill(reflect.ValueOf(&en.Disclosure).Elem())
	body := fresh(bodies[f.index(len(bodies))])
	f.fill(reflect.ValueOf(body).Elem())
	en.Body = body.(Body)
	return en
}

func drawRow(t *rapid.T) Row {
	f := &filler{t: t}
	row := fresh(rows[f.index(len(rows))])
	f.fill(reflect.ValueOf(row).Elem())
	return row.(Row)
}

// nameOf names an entry or a row by its kind.
func nameOf(x any) string {
	switch x := x.(type) {
	case *Entry:
		if r, is := x.Body.(*RunEvent); is {
			return "entry-run-" + r.Event.RunKind().String()
		}
		return "entry-" + x.Body.Kind().String()
	case Row:
		return fmt.Sprintf("row-%d", x.Table())
	}
	panic(fmt.Sprintf("no name for %T", x))
}
