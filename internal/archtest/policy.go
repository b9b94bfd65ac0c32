package archtest

// This file is the policy. A row is added, widened or removed only together
// with its reason: the reason is printed when the row is broken, so it should
// tell the reader where the code belongs instead.

// root is the name by which the tables call the package in the module's own
// folder.
const root = "parley"

// kind says which rules a package is held to beyond the import graph.
type kind int

const (
	// pure packages decide. They take time, ids and randomness as values and
	// import the standard library only, without the parts named in banned and
	// clock.
	pure kind = iota + 1
	// shell packages wait: for disks, sockets, timers, people and models.
	shell
	// support packages serve tests. They import what they need and nothing
	// but tests and other support packages imports them.
	support
)

// folder is one folder that may hold Go code.
type folder struct {
	name string // path from the module root; * stands for one element
	kind kind
	why  string
}

// folders lists every folder that may hold Go code. client/ts and
// client/godot are absent because they hold none.
var folders = []folder{
	{"event", pure, "the vocabulary: whatever it pulled in, everything would pull in"},
	{"channel", pure, "the rules of one lane, replayed from the journal"},
	{"speech", pure, "the rules of the floor, replayed from the journal"},
	{"cue", pure, "the rules of cue stages, replayed from the journal"},
	{"interaction", pure, "the rules of envelopes and votes, replayed from the journal"},
	{"room", pure, "composes the rules; a replay must reach the same state on any machine"},
	{"gateway/wire", pure, "frames and codes that server and client must read alike"},

	{"actors", shell, "mailboxes and supervision"},
	{"persistence", shell, "the disk"},
	{"gateway", shell, "sockets and HTTP"},
	{"driver", shell, "the contract with what answers for an agent"},
	{"driver/*", shell, "one driver each, or the suite that all of them pass"},
	{"client", shell, "the other end of the socket"},
	{"console", shell, "embedded web pages"},
	{"bench", shell, "load and its measurements"},
	{root, shell, "the embeddable runtime, where the parts are plugged together"},
	{"cmd/parley", shell, "the binary: flags, environment and files are read here only"},

	{"internal/workerpool", shell, "goroutines that keep their stacks, for the two shells that start many"},
	{"internal/*", support, "script environments, fakes and checks that only tests use"},
}

// edge lets the packages above import the package below: below < above.
type edge struct {
	below string
	above []string
	why   string
}

// graph is the import graph between the module's own packages. What it does
// not allow is refused. anyone stands for every package.
var graph = []edge{
	{"event", []string{anyone}, "the shared words; it imports nothing of the module"},

	{"channel", []string{"room"}, "a lane changes only as part of its room's decision"},
	{"speech", []string{"room"}, "the floor changes only as part of its room's decision"},
	{"cue", []string{"room"}, "cue stages change only as part of their room's decision"},
	{"interaction", []string{"room"}, "envelopes and votes change only as part of their room's decision"},

	{"room", []string{"actors", root}, "an actor runs the state; the runtime offers replay and inspection; others see entries and views in terms of event"},
	{"actors", []string{root}, "gateway and persistence declare what they need as small interfaces over event; the runtime plugs actors in"},
	{"persistence", []string{root}, "actors and gateway declare what they need as small interfaces over event; the runtime plugs the journal in"},
	{"gateway", []string{root}, "only the runtime opens the door; the parts behind it do not know sockets"},
	{"gateway/wire", []string{"gateway", "client", "bench", root, "cmd/parley"}, "frames belong to the two ends of the socket; inside, the words are event's. The runtime and the tools of the binary name entries and reasons as the wire does"},

	{"internal/workerpool", []string{"actors", "gateway"}, "they start a goroutine for every flush, attempt and burst of frames"},

	{"driver", []string{"actors", "driver/*", root, "cmd/parley"}, "actors call the contract, drivers fulfil it, the runtime and the binary hand drivers over"},
	{"driver/guide", []string{root, "cmd/parley"}, "a driver is chosen by configuration, which is read there"},
	{"driver/script", []string{root, "cmd/parley"}, "a driver is chosen by configuration, which is read there"},

	{"client", []string{"console", "bench", root, "cmd/parley"}, "whoever talks to a server as an outsider; server parts never do"},
	{"console", []string{root}, "the runtime serves the pages"},
	{root, []string{"cmd/parley"}, "the binary is the runtime with flags; no part reaches back up"},
	{"bench", []string{"cmd/parley"}, "a command of the binary; nothing in the product depends on its measurements"},
}

// library names module paths outside this module and who may import them.
// Sub-packages and major versions are meant too.
type library struct {
	path  string
	above []string
	why   string
}

// engines are the libraries that one part wraps, so that the rest can be
// tested without them and they can be replaced in one place.
var engines = []library{
	{"github.com/cockroachdb/pebble", []string{"persistence", "bench"}, "persistence owns durability and its failure rules; bench measures the bare engine beside it"},
	{"github.com/asynkron/protoactor-go", []string{"actors"}, "its mailboxes and stops have sharp edges that actors alone knows"},
	{"github.com/gorilla/websocket", []string{"gateway", "client", "bench"}, "the two ends of the socket, and bench for the raw echo beside them"},
}

// admitted are the libraries outside the standard one that pure packages may
// import.
var admitted = []library{
	{"github.com/rivo/uniseg", []string{"channel", "speech"}, "text is cut and measured in what a reader sees as one character; the library is itself pure"},
}

// ban is a part of the standard library that pure packages may not import,
// its sub-packages included.
type ban struct {
	path   string
	except []string
	why    string
}

var banned = []ban{
	{"os", nil, "files, environment and processes belong to a shell"},
	{"syscall", nil, "files, environment and processes belong to a shell"},
	{"C", nil, "foreign code cannot be shown to be pure"},
	{"net", nil, "the network belongs to a shell"},
	{"sync", nil, "pure state has one owner and needs no lock"},
	{"context", nil, "a decision does not wait, so there is nothing to cancel"},
	{"log", nil, "a decision returns what happened; its shell logs it"},
	{"math/rand", nil, "randomness comes in with the input, or a replay would differ"},
	{"crypto/rand", []string{"gateway/wire"}, "randomness comes in with the input, or a replay would differ; wire may use all of crypto to seal what it sends"},
	{"hash/maphash", nil, "its seed differs in every process, so a replay would differ"},
}

// clock names the parts of package time that read the machine's clock or zone
// or wait for it. Pure packages take the time as a value.
var clock = []string{
	"Now", "Since", "Until",
	"After", "AfterFunc", "Sleep", "Tick", "NewTicker", "NewTimer",
	"Local", "LoadLocation",
}
