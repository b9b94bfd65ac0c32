package driver_test

import (
	"context"
	"errors"
	"testing"

	"parley/driver"
	"parley/event"
)

type both struct{ driver.RunFunc }

func (both) Respond(context.Context, *driver.Turn) (*event.Decision, error) { return nil, nil }

func TestCheckTakesRunnersAndResponders(t *testing.T) {
	run := driver.RunFunc(func(context.Context, *driver.Turn, driver.Emitter) error { return nil })
	respond := driver.RespondFunc(func(context.Context, *driver.Turn) (*event.Decision, error) { return nil, nil })
	for name, d := range map[string]driver.Driver{"runner": run, "responder": respond, "both": both{run}, "pointer": &both{run}} {
		if err := driver.Check(name, d); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheckNamesTheDriverThatIsNone(t *testing.T) {
	for _, tc := range []struct {
		d    driver.Driver
		want string
	}{
		{nil, `driver "guide": a <nil> has neither Run nor Respond; give it one of the two methods of package driver`},
		{7, `driver "guide": a int has neither Run nor Respond; give it one of the two methods of package driver`},
		{func(context.Context, *driver.Turn, driver.Emitter) error { return nil }, `driver "guide": a func(context.Context, *driver.Turn, driver.Emitter) error has neither Run nor Respond; give it one of the two methods of package driver`},
	} {
		if err := driver.Check("guide", tc.d); err == nil || err.Error() != tc.want {
			t.Errorf("Check says %v, want %s", err, tc.want)
		}
	}
}

type emitted struct {
	bodies []event.RunBody
	err    error
}

func (e *emitted) Emit(b event.RunBody) error {
	e.bodies = append(e.bodies, b)
	return e.err
}

func TestSayIsOneFinalDelta(t *testing.T) {
	out := &emitted{err: driver.ErrEnded}
	if err := driver.Say(out, "a", "Yes."); !errors.Is(err, driver.ErrEnded) {
		t.Errorf("Say returned %v, want the emitter's error", err)
	}
	got, ok := out.bodies[0].(event.AssistantOutput)
	if len(out.bodies) != 1 || !ok || got.Output != "a" || got.Delta != "Yes." || !got.Final || got.Purpose != 0 || got.History != 0 {
		t.Errorf("Say sent %+v", out.bodies)
	}
}
