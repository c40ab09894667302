// Package signature reads inspection rules in Suricata's syntax: it parses them, reports every error with its
// line and column, and returns what each rule tests in a form that filter/inspect evaluates.
//
//	action proto source ports -> destination ports (keyword:value; keyword; ...)
//
// Text comes from the caller, who reads files. An option that the package does not implement is named and
// counted, and its rule is not loaded: a rule without one of its conditions would alert on other packets.
// The package evaluates nothing and holds no state.
//
// The language is that of Suricata 7's user guide, chapter "Suricata Rules".
package signature

// Action is the action of a rule on what it matches.
type Action uint8

// The actions. Reject also drops.
const (
	Alert Action = iota
	Pass
	Drop
	Reject
)

var actions = map[string]Action{
	"alert": Alert, "pass": Pass, "drop": Drop,
	"reject": Reject, "rejectsrc": Reject, "rejectdst": Reject, "rejectboth": Reject,
}

// String returns the word that a rule begins with.
func (a Action) String() string { return [...]string{"alert", "pass", "drop", "reject"}[a] }

// Rule is one inspection rule.
type Rule struct {
	Action   Action
	Protocol Protocol
	Src, Dst *Addrs
	SrcPorts *Ports
	DstPorts *Ports
	Both     bool // "<>": either end may be the source

	SID, GID, Rev uint32
	Msg           string
	Class         string // classtype
	Priority      int    // 1 is the most urgent; 3 where neither priority nor classtype says
	NoAlert       bool   // it sets bits only
	FTPBounce     bool   // a PORT command of FTP names another host than the client (RFC 2577 3)

	Flow   Flow
	AppIs  []AppTest // app-layer-protocol
	Packet []PacketTest
	Parts  []Part // in the order in which the rule names their buffers
	Bits   []Bit
	// Counters are the operations of flowint.
	Counters []Counter
	Limit    *Limit // threshold
	Detect   *Limit // detection_filter

	File string
	Line int    // of its first byte, from 1
	Text string // as it was written, one line
}

// Part is the tests of one buffer, in the order of the rule. All of them match in one instance of the buffer.
type Part struct {
	Buffer     Buffer
	Transforms []Transform
	Tests      []Test

	Absent bool // it matches where there is no such buffer
	OrElse bool // beside Absent: also where the tests match in one
}

// AppTest asks which application protocol a flow is recognised as.
type AppTest struct {
	Name string // as the rule has it
	App  App    // AppUnknown: none was recognised
	Only bool   // http1: no other version
	Not  bool
}

// Has reports whether a flow that is recognised as app passes.
func (t *AppTest) Has(app App) bool {
	return (app == t.App || t.App == AppHTTP && app == AppHTTP2 && !t.Only) != t.Not
}

// Kind defines what a Test tests.
type Kind uint8

// The kinds of tests.
const (
	TestContent Kind = iota
	TestPattern
	TestByte     // byte_test
	TestJump     // byte_jump
	TestExtract  // byte_extract
	TestMath     // byte_math
	TestIsDataAt // isdataat
	TestSize     // bsize, urilen: the size of the whole buffer
	TestBase64   // base64_decode: fills base64_data
	TestInteger  // the buffer is a number: its bits in Mask are in Size
	TestSet      // dataset: the buffer is in a set
)

// Test is one condition on the bytes of a buffer. The field that Kind names is set.
type Test struct {
	Kind     Kind
	Content  *Content
	Pattern  *Pattern
	Number   *Number // byte_test, byte_jump, byte_extract and byte_math
	IsDataAt *IsDataAt
	Size     Range
	Mask     uint64 // TestInteger
	Base64   *Base64
	Set      *SetTest
}

// Relative reports whether t begins where the test before it ended.
func (t *Test) Relative() bool {
	switch t.Kind {
	case TestContent:
		return t.Content.Relative
	case TestPattern:
		return t.Pattern.Relative
	case TestByte, TestJump, TestExtract, TestMath:
		return t.Number.Relative
	case TestIsDataAt:
		return t.IsDataAt.Relative
	case TestBase64:
		return t.Base64.Relative
	}
	return false
}

// Range is a set of numbers: those with Low <= n <= High, or the others where Not is set.
type Range struct {
	Low, High uint64
	Not       bool
}

// Has reports whether n is in r.
func (r Range) Has(n uint64) bool { return (r.Low <= n && n <= r.High) != r.Not }
