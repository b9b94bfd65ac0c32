package event

import (
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files that are missing; what was journaled once is never rewritten")

// samples are typical records. Their golden files say how this version and
// every later one must read what is on disks. A sample is not changed: a member
// that is added gets a further sample of its kind at the end.
func samples() (entries []*Entry, rs []Row) {
	at := time.UnixMilli(1_796_072_400_120).UTC()
	entry := func(ch ChannelID, d Disclosure, b Body) {
		entries = append(entries, &Entry{Seq: 1_000_001, At: at, Channel: ch, Disclosure: d, Body: b})
	}
	run := func(b RunBody) {
		entry("private:visitor-7", ToParticipants("visitor-7", "mod-1"), &RunEvent{
			Run: "r_F9", Agent: "guide", Input: "0192f0c2-7b1e", Attempt: 2, Sequence: 17, N: 16,
			Logical: "answer", Runtime: b.RunKind() == KindAttemptStarted, Event: b,
		})
	}
	entry("public", ToRoom(), &InputAdmitted{
		Input: "0192f0c2-7b1e", Speaker: Person("visitor-7"), By: "host", Text: "What should I carry — “forward”?\n",
		Modality: Speech, Lang: "en", EndedAt: at.Add(-time.Second), Agent: "guide", Run: "r_F9", State: Started,
		Digest: [32]byte{0: 0xde, 1: 0xad, 31: 0x01}, Budget: 90 * time.Second, RunDisclosure: ToParticipants("visitor-7"),
		AgentVersion: "3", Recovery: RecoverFail,
	})
	entry("", ToRoom(), &RoomConfigured{
		Config: RoomConfig{
			Agents: []Agent{{
				ID: "guide", Label: "Rules guide", Role: "guide", Description: "Knows the rules.", Voice: &Voice{ID: "v1", Lang: "en"},
				Visibility: ToParticipants("visitor-7"), Version: "3", Driver: "guide", Recovery: RecoverAuto,
			}},
			FallbackAgent: "guide", Phase: "opening", PhaseAgents: map[string]AgentID{"opening": "guide"},
			Channels: []ChannelPolicy{{Match: "private:*", OnBusy: BusyQueue}}, DeadlineMs: 30_000, WaitMs: 60_000,
		},
		By: "host", Incarnation: 0x7f3a91c40b2e,
	})
	entry("", ToParticipants("visitor-7"), &FocusSet{Subject: "visitor-7", Agent: "guide"})
	entry("", ToNone(), &Drained{})
	run(Progress{Stage: "searching", Current: new(int64(3)), Total: new(int64(-1)), Unit: "pages", Message: "Reading"})
	run(AssistantOutput{
		Output: "o_x", Delta: "I found ", Final: true, Purpose: Answer, History: Record, Audience: ToParticipants("visitor-7"),
		Interruptible: new(false), Lang: "en", Spoken: "I found",
	})
	run(Checkpoint{Value: json.RawMessage(`{"page":3,"seen":["a"]}`)})
	run(InputRequested{Request: "q1", Token: "t_9", ExpiresAt: at.Add(time.Minute), Speaker: Person("visitor-7")})
	run(Decision{Utterances: []Utterance{{Text: "Yes.", Audience: ToRoom(), Lang: "en"}, {Text: "No."}}})
	run(Completed{})
	run(AttemptStarted{Resumed: true})
	run(RunCanceled{Reason: ReasonSuperseded, By: "visitor-7"})
	run(DeadlineExceeded{})
	run(RunFailed{Code: CodeProcessingFailed, Message: "The agent could not answer."})
	run(RunBlocked{Step: "s1", Reason: BlockedAgentVersion})

	rs = []Row{
		&InputRow{Digest: [32]byte{0: 0xde, 31: 0x01}, Disclosure: ToParticipants("visitor-7"), Entry: 1_000_001, At: at, Run: "r_F9", State: Queued},
		&RunRow{
			Run: "r_F9", Channel: "public", Agent: "guide", Speaker: Person("visitor-7"), Disclosure: ToRoom(), Status: RunFailedStatus,
			Attempt: 2, Sequence: 17, First: 999_990, Last: 1_000_001, Started: at, Ended: at.Add(time.Second),
			Reason: ReasonCanceled, Code: CodeProcessingFailed, Message: "The agent could not answer.",
		},
		&TranscriptRow{
			Entry: 1_000_001, At: at, Speaker: Endpoint{AgentEndpoint, "guide"}, Disclosure: ToRoom(), Run: "r_F9", Input: "0192f0c2-7b1e",
			Output: "o_x", Modality: Text, Lang: "en", Text: "I found a lantern.",
		},
	}
	return entries, rs
}

const goldenDir = "testdata/golden"

func TestWhatWasJournaledOnceIsReadableForEver(t *testing.T) {
	known := map[string]bool{}
	eachSample(func(name string, raw []byte, x any) {
		known[name] = true
		writeMissing(t, name, raw, x)
	})
	for _, en := range filledEntries() {
		if !known[nameOf(en)] {
			t.Errorf("no golden file for %s", nameOf(en))
		}
	}
	for _, r := range filledRows() {
		if !known[nameOf(r)] {
			t.Errorf("no golden file for %s", nameOf(r))
		}
	}
	files, err := filepath.Glob(goldenDir + "/*.txt")
	if err != nil || len(files) < len(known) {
		t.Fatalf("%d golden files for %d kinds, %v", len(files), len(known), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		first, want, _ := strings.Cut(string(text), "\n")
		raw, err := hex.DecodeString(first)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		var got any
		if strings.HasPrefix(filepath.Base(file), "entry-") {
			got, err = DecodeEntry(1_000_001, raw)
		} else {
			got, err = DecodeRow(raw)
		}
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if d := dump(got); d != want {
			t.Errorf("%s reads as\n%swant\n%s", file, d, want)
		}
	}
}

// Today's encoding of the samples is the golden one: a change of it is a new
// format and must be meant.
func TestTheEncodingDoesNotChangeByAccident(t *testing.T) {
	eachSample(func(name string, raw []byte, _ any) {
		text, err := os.ReadFile(goldenFile(name))
		if err != nil {
			t.Fatal(err)
		}
		if want, _, _ := strings.Cut(string(text), "\n"); hex.EncodeToString(raw) != want {
			t.Errorf("%s is written as\n%x\nand was as\n%s", name, raw, want)
		}
	})
}

// eachSample calls f with each sample, its encoding and its name: that of its
// kind, and from the second one on a number.
func eachSample(f func(name string, raw []byte, x any)) {
	seen := map[string]int{}
	name := func(x any) string {
		n := nameOf(x)
		if seen[n]++; seen[n] > 1 {
			n += "-" + strconv.Itoa(seen[n])
		}
		return n
	}
	entries, rs := samples()
	for _, en := range entries {
		f(name(en), AppendEntry(nil, en), en)
	}
	for _, r := range rs {
		f(name(r), AppendRow(nil, r), r)
	}
}

func goldenFile(name string) string { return filepath.Join(goldenDir, name+".txt") }

func writeMissing(t *testing.T, name string, raw []byte, x any) {
	t.Helper()
	if _, err := os.Stat(goldenFile(name)); err == nil || !*update {
		return
	}
	if err := os.MkdirAll(goldenDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(goldenFile(name), []byte(hex.EncodeToString(raw)+"\n"+dump(x)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// dump lists the members of x that are not zero, one per line. A member that is
// added later leaves the dumps of older records as they are.
func dump(x any) string {
	var b strings.Builder
	dumpValue(&b, strings.TrimLeft(fmt.Sprintf("%T", x), "*"), reflect.ValueOf(x))
	return b.String()
}

func dumpValue(b *strings.Builder, path string, v reflect.Value) {
	if v.IsZero() && v.Kind() != reflect.Struct {
		return
	}
	switch x := v.Interface().(type) {
	case time.Time:
		if !x.IsZero() {
			fmt.Fprintf(b, "%s %s\n", path, x.Format(time.RFC3339Nano))
		}
		return
	case time.Duration, Kind, RunKind, Status, Purpose, History, Modality, Admission, BusyPolicy, EndpointKind, DisclosureKind:
		fmt.Fprintf(b, "%s %s\n", path, x)
		return
	case json.RawMessage:
		fmt.Fprintf(b, "%s %s\n", path, x)
		return
	case [32]byte:
		fmt.Fprintf(b, "%s %x\n", path, x)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.Elem().Kind() != reflect.Struct && v.Elem().IsZero() {
			fmt.Fprintf(b, "%s %v\n", path, v.Elem().Interface())
			return
		}
		dumpValue(b, path, v.Elem())
	case reflect.Interface:
		fmt.Fprintf(b, "%s %s\n", path, strings.TrimLeft(v.Elem().Type().String(), "*"))
		dumpValue(b, path, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			dumpValue(b, path+"."+v.Type().Field(i).Name, v.Field(i))
		}
	case reflect.Slice:
		for i := range v.Len() {
			dumpValue(b, path+"["+strconv.Itoa(i)+"]", v.Index(i))
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); { // samples hold one member each
			dumpValue(b, path+"["+it.Key().String()+"]", it.Value())
		}
	case reflect.String:
		fmt.Fprintf(b, "%s %q\n", path, v.String())
	default:
		fmt.Fprintf(b, "%s %v\n", path, v.Interface())
	}
}
