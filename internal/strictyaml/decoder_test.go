package strictyaml

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// read decodes src by a schema that has every reader, and returns the errors.
func read(src string, set func(d *Decoder)) error {
	d := New("f", []byte(src))
	set(d)
	var n uint16
	var word string
	var length time.Duration
	var ring int
	if root := d.Document([]byte(src)); root != nil {
		d.Mapping(root, "the file",
			Required("number", func(n2 *yaml.Node) { Integer(d, n2, "number", &n, 2, 9) }),
			Optional("word", func(n *yaml.Node) { Choice(d, n, "word", &word, "cpu", "cuda") }),
			Optional("length", func(n *yaml.Node) { d.Duration(n, "length", &length, time.Second, time.Minute) }),
			Optional("list", func(n *yaml.Node) { d.List(n, "list", 2, func(*yaml.Node) {}) }),
			Optional("some", func(n *yaml.Node) { d.OneOrMore(n, "some", 2, func(*yaml.Node) {}) }),
			Optional("ring", func(n *yaml.Node) { PowerOfTwo(d, n, "ring", &ring, 4, 16) }),
		)
	}
	return d.Err()
}

func TestEveryErrorHasItsPlaceAndItsHint(t *testing.T) {
	helped := func(d *Decoder) {
		d.Example, d.Cause = "the book", func([]string) string { return "a cause" }
	}
	plain := func(*Decoder) {}
	for _, c := range []struct {
		src, want string
		set       func(*Decoder)
	}{
		{"", "f:1:1: the file is empty\n  see the book", helped},
		{"", "f:1:1: the file is empty", plain},
		{"number: 2\nword: npu_", "f:2:7: word cannot be \"npu_\"\n  word: npu_\n        ^\n  allowed: cpu, cuda", plain},
		{"number: 2\nword: cpx", "f:2:7: word cannot be \"cpx\"\n  word: cpx\n        ^\n  did you mean \"cpu\"? allowed: cpu, cuda", plain},
		{"number: 1", "f:1:9: number is 1; it must lie between 2 and 9\n  number: 1\n          ^", plain},
		{"number: 10", "f:1:9: number is 10; it must lie between 2 and 9\n  number: 10\n          ^", plain},
		{"number: 2\nring: 12", "f:2:7: ring is 12; it must be a power of two\n  ring: 12\n        ^\n  8 or 16", plain},
		{"number: 2\nring: 15", "f:2:7: ring is 15; it must be a power of two\n  ring: 15\n        ^\n  8 or 16", plain},
		{"number: 2\nring: 32", "f:2:7: ring is 32; it must lie between 4 and 16\n  ring: 32\n        ^", plain},
		{"number: 2\nring: 2", "f:2:7: ring is 2; it must lie between 4 and 16\n  ring: 2\n        ^", plain},
		{"number: x", "f:1:9: number must be a whole number, not \"x\"\n  number: x\n          ^", plain},
		{"number: 10m", "f:1:9: number must be a whole number, not \"10m\"\n  number: 10m\n          ^\n  without a unit: of bytes 10485760", plain},
		{"number: 2 GiB", "f:1:9: number must be a whole number, not \"2 GiB\"\n  number: 2 GiB\n          ^\n  without a unit: of bytes 2147483648", plain},
		{"number: 64kB", "f:1:9: number must be a whole number, not \"64kB\"\n  number: 64kB\n          ^\n  without a unit: of bytes 65536", plain},
		{"number: 99999999999G", "f:1:9: number must be a whole number, not \"99999999999G\"\n  number: 99999999999G\n          ^", plain},
		{"word: cpu", "f:1:1: the file lacks the key \"number\"\n  word: cpu\n  ^", plain},
		{"number: 2\nnumber: 3", "f:2:1: key \"number\" is repeated: it is already on line 1\n  number: 3\n  ^", plain},
		{"number: 2\nx: 3", "f:2:1: unknown key \"x\" in the file\n  x: 3\n  ^\n  allowed: number, word, length, list, some, ring", plain},
		{"number: 2\nlength: 3", "f:2:9: length has no unit\n  length: 3\n          ^\n  write 3s for seconds", plain},
		{"number: 2\nlength: 61s", "f:2:9: length is 1m1s; it must lie between 1s and 1m0s\n  length: 61s\n          ^", plain},
		{"number: 2\nlist: []", "f:2:7: list is empty\n  list: []\n        ^", plain},
		{"number: 2\nlist: 7", "f:2:7: list must be a list, not the number 7\n  list: 7\n        ^", plain},
		{"number: 2\nsome: [1, 2, 3]", "f:2:7: some has 3 items; at most 2 are allowed\n  some: [1, 2, 3]\n        ^", plain},
		{"[1]", "f:1:1: the file must be a mapping, not a list\n  [1]\n  ^", plain},
		{"a: {", "f:1:1: not YAML: did not find expected node content\n  a: {\n  ^\n  a cause", helped},
		{"number: 2\n---\nx: 1", "f:2:1: a second document\n  ---\n  ^\n  remove the \"---\" and what follows", plain},
		{"number: 1\nx: 3\nword: x", "f:1:9: ", plain},
	} {
		err := read(c.src, c.set)
		if err == nil || err.Error() != c.want && !(strings.HasSuffix(c.want, ": ") && strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("%q:\n%v\nwant\n%s", c.src, err, c.want)
		}
		if e := new(Error); !errors.As(err, &e) {
			t.Errorf("%q: %T", c.src, err)
		}
	}
}

func TestValidFileIsAccepted(t *testing.T) {
	const src = "number: &n 2\nword: cuda\nlength: 60s\nlist: [1, *n]\nsome: 1\n"
	if err := read(src, func(*Decoder) {}); err != nil {
		t.Error(err)
	}
}

// Dumpers of YAML 1.1 write a truth value where a program has set the word.
func TestATruthValueStandsForAWord(t *testing.T) {
	for _, c := range []struct {
		src, want string
		allowed   []string
	}{
		{"w: false", "off", []string{"off", "auto", "on"}},
		{"w: true", "on", []string{"off", "auto", "on"}},
		{"w: false", "no", []string{"no", "sometimes"}},
		{"w: off", "off", []string{"off", "auto"}},
		{"w: 'false'", "", []string{"off", "auto"}},
		{"w: true", "", []string{"off", "auto"}},
		{"w: false", "", []string{"cpu"}},
	} {
		d, got := New("f", []byte(c.src)), ""
		d.Mapping(d.Document([]byte(c.src)), "the file", Required("w", func(n *yaml.Node) { Choice(d, n, "w", &got, c.allowed...) }))
		if got != c.want || (d.Err() == nil) != (c.want != "") {
			t.Errorf("%s of %v: %q, %v", c.src, c.allowed, got, d.Err())
		}
	}
	word := "off"
	s := Describe(func(d *Decoder, n *yaml.Node) { Choice(d, n, "w", &word, "off", "auto") })
	if s.Form() != "off or auto" || s.Type != "" || !slices.Equal(s.Enum, []any{"off", "auto", false}) || s.Sets(&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: "false"}) {
		t.Errorf("%+v, %s", s, s.Form())
	}
}

func TestErrorsAreInTheOrderOfTheFile(t *testing.T) {
	err := read("x: 1\nlist: []\ny: 2\n", func(*Decoder) {})
	e := new(Error)
	if !errors.As(err, &e) || len(e.Problems) != 4 {
		t.Fatalf("%v", err)
	}
	for i, line := range []int{1, 1, 2, 3} {
		if e.Problems[i].Line != line {
			t.Errorf("problem %d is on line %d, want %d", i, e.Problems[i].Line, line)
		}
	}
}

func TestErrorWithoutAPlace(t *testing.T) {
	d := New("", nil)
	d.Fail(nil, "yes", "no %d", 1)
	if err := d.Err(); err == nil || err.Error() != "no 1\n  yes" {
		t.Errorf("%q", err)
	}
}

// lists is a schema of mappings in a list, whose numbers it collects.
func lists(src string) (numbers []int, words []string, err error) {
	d := New("f", []byte(src))
	if root := d.Document([]byte(src)); root != nil {
		d.Mapping(root, "the file", Required("items", func(n *yaml.Node) {
			d.List(n, "items", 1<<20, func(n *yaml.Node) {
				var number int
				var word string
				d.Mapping(n, "an item",
					Required("number", func(n *yaml.Node) { Integer(d, n, "number", &number, 0, 9) }),
					Optional("word", func(n *yaml.Node) { Choice(d, n, "word", &word, "cpu", "cuda") }),
					Optional("list", func(n *yaml.Node) {
						d.List(n, "list", 1<<20, func(n *yaml.Node) { Integer(d, n, "item", &number, 0, 9) })
					}),
				)
				numbers, words = append(numbers, number), append(words, word)
			})
		}))
	}
	return numbers, words, d.Err()
}

func TestAnchorsAliasesAndMergeKeys(t *testing.T) {
	for _, src := range []string{
		"x-base: &base {number: 3, word: cpu}\nitems: [*base, {<<: *base, number: 4}, {<<: *base, word: cuda}]\n",
		"x-n: &three 3\nx-four: &four {number: 4}\nitems:\n- &first {number: *three, word: cpu}\n- <<: [*four, *first]\n- word: cuda\n  <<: *first\n",
		"items: [&a {number: 3, word: cpu}, &b {<<: *a, number: 4}, {<<: *a, word: cuda}]\n",
		"x-a: &a {number: 3}\nx-b: &b {<<: *a, word: cpu}\nitems: [*b, {<<: [{number: 4}, *b]}, {<<: *b, word: cuda}]\n",
	} {
		numbers, words, err := lists(src)
		if err != nil || !slices.Equal(numbers, []int{3, 4, 3}) || !slices.Equal(words, []string{"cpu", "cpu", "cuda"}) {
			t.Errorf("%s: %v %v %v", src, numbers, words, err)
		}
	}
}

func TestErrorsBehindAliasesHaveThePlaceOfTheValue(t *testing.T) {
	for _, c := range []struct{ src, want string }{
		{"x-b: &b\n  number: 10\nitems: [*b, *b, {<<: *b}]\n", "f:2:11: number is 10; it must lie between 0 and 9\n    number: 10\n            ^"},
		{"x-b: &b {nmuber: 1}\nitems: [{<<: *b, number: 1}]\n", "f:1:10: unknown key \"nmuber\" in an item\n  x-b: &b {nmuber: 1}\n           ^\n  did you mean \"number\"? allowed: number, word, list"},
		{"x-b: &b {word: cpu}\nitems: [{<<: *b}]\n", "f:2:9: an item lacks the key \"number\"\n  items: [{<<: *b}]\n          ^"},
		{"items: [{<<: 7, number: 1}]\n", "f:1:14: << must be a mapping or a list of mappings, not the number 7\n  items: [{<<: 7, number: 1}]\n               ^\n  such as <<: *name"},
		{"items: [{<<: [[]], number: 1}]\n", "f:1:15: << must be a mapping or a list of mappings, not a list\n  items: [{<<: [[]], number: 1}]\n                ^\n  such as <<: *name"},
		{"items: [&a {<<: *a, number: 1}]\n", "f:1:9: a mapping is merged into itself\n  items: [&a {<<: *a, number: 1}]\n          ^"},
		{"items: [{x-a: 1, number: 1}]\n", "f:1:10: unknown key \"x-a\" in an item\n  items: [{x-a: 1, number: 1}]\n           ^\n  allowed: number, word, list"},
		{"items:\n- number: *b\n- *ab\n", "f:2:11: there is no anchor \"b\"\n  - number: *b\n            ^\n  define it before its use: &b"},
		{"items: [{<<: *b}]\nx-b: &b {number: 1}\n", "f:1:14: there is no anchor \"b\"\n  items: [{<<: *b}]\n               ^\n  define it before its use: &b"},
	} {
		if _, _, err := lists(c.src); err == nil || err.Error() != c.want {
			t.Errorf("%q:\n%v\nwant\n%s", c.src, err, c.want)
		}
	}
}

// A file of a few kilobytes can stand for more nodes than memory holds: the walk ends early, with one error.
func TestAliasBombsAreBounded(t *testing.T) {
	list := "x-l: &l [" + strings.Repeat("1,", 2000) + "1]\nitems: [&i {number: 1, list: *l}" + strings.Repeat(", *i", 2000) + "]\n"
	nested := "x-0: &a0 {number: 1}\n"
	for i := range 40 {
		nested += fmt.Sprintf("x-%d: &a%d {<<: [*a%d, *a%d]}\n", i+1, i+1, i, i)
	}
	for _, src := range []string{list, nested + "items: [*a40]\n"} {
		_, _, err := lists(src)
		e := new(Error)
		if !errors.As(err, &e) || len(e.Problems) != 1 || !strings.Contains(e.Problems[0].Message, "the aliases of the file stand for more than") {
			t.Errorf("%.200v", err)
		}
	}
	if _, _, err := lists("x-i: &i {number: 1}\nitems: [*i" + strings.Repeat(", {<<: *i}", 100_000) + "]\n"); err != nil {
		t.Errorf("%.200v", err)
	}
}

func TestDescribeIsWhatTheDecoderAccepts(t *testing.T) {
	var n uint16
	engine, length, ring := "cpu", time.Second, 8
	s := Describe(func(d *Decoder, root *yaml.Node) {
		d.Mapping(root, "the file",
			Required("number", func(n2 *yaml.Node) {
				if !d.Word(n2, "auto") {
					Integer(d, n2, "number", &n, 2, 9)
				}
			}),
			Optional("engine", func(n *yaml.Node) { Choice(d, n, "engine", &engine, "cpu", "cuda") }),
			Optional("ring", func(n *yaml.Node) { PowerOfTwo(d, n, "ring", &ring, 4, 16) }),
			Optional("some", func(n *yaml.Node) {
				d.OneOrMore(n, "some", 2, func(n *yaml.Node) { d.Duration(n, "some", &length, time.Second, time.Minute) })
			}),
			Optional("items", func(n *yaml.Node) {
				d.List(n, "items", 3, func(n *yaml.Node) {
					on := true
					d.Mapping(n, "an item", Required("on", func(n *yaml.Node) { d.Truth(n, "on", &on) }))
				})
			}),
		)
		d.Fail(root, "", "not recorded")
	})
	var got []string
	for _, k := range s.Keys() {
		got = append(got, fmt.Sprintf("%s %v %s [%s]", k.Path, k.Required, k.Schema.Form(), k.Schema.DefaultOf()))
	}
	want := []string{
		"number true auto or 2 to 9 []", "engine false cpu or cuda [cpu]", "ring false 4, 8 or 16 [8]", "some false duration, 1s to 1m0s or list [1s]",
		"items false list of mappings []", "items[].on true true or false [true]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	text, err := json.Marshal(s)
	if err != nil || !strings.HasPrefix(string(text), `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"number":{"anyOf":[{"type":"string","enum":["auto"]},{"type":"integer","minimum":2,"maximum":9}]},"engine"`) {
		t.Errorf("%v %s", err, text)
	}
}

// A file with many errors is reported in linear time.
func TestManyErrors(t *testing.T) {
	src := "items:\n" + strings.Repeat("- {number: 10}\n", 50_000)
	_, _, err := lists(src)
	e := new(Error)
	if !errors.As(err, &e) || len(e.Problems) != 50_000 {
		t.Errorf("%.100v", err)
	}
}

// FuzzDecoder looks for panics, endless walks and errors without a place. The parser puts what is missing at
// the end on the next line.
func FuzzDecoder(f *testing.F) {
	for _, src := range []string{
		"items: [{number: 1}]\n", "x-b: &b {number: 1}\nitems: [*b, {<<: *b, word: cpu}, {<<: [*b, {list: [1, 2]}]}]\n",
		"items: &i [*i]\n", "items: [&a {<<: *a}]\n", "a: &a [*b]\nb: &b [*a]\n", "items: [*b]\n", "? [a]\n: b\n", "items: [{<<: [[]]}]\n",
	} {
		f.Add(src)
	}
	f.Fuzz(func(t *testing.T, src string) {
		_, _, err := lists(src)
		if e := new(Error); errors.As(err, &e) {
			lines := 1
			for _, r := range src {
				if strings.ContainsRune("\n\r\u0085\u2028\u2029", r) { // YAML 1.1 has five line breaks
					lines++
				}
			}
			for _, p := range e.Problems {
				if p.Line < 1 || p.Line > lines+1 || p.Column < 1 || p.Message == "" {
					t.Errorf("%+v in %d lines", p, lines)
				}
			}
		}
	})
}
