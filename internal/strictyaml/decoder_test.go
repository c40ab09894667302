package strictyaml

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// read decodes src by a schema that has every reader, and returns the mistakes.
func read(src string, set func(d *Decoder)) error {
	d := New("f", []byte(src))
	set(d)
	var n uint16
	var word string
	var length time.Duration
	if root := d.Document([]byte(src)); root != nil {
		d.Mapping(root, "the file",
			Required("number", func(n2 *yaml.Node) { Integer(d, n2, "number", &n, 2, 9) }),
			Optional("word", func(n *yaml.Node) { Choice(d, n, "word", &word, "cpu", "cuda") }),
			Optional("length", func(n *yaml.Node) { d.Duration(n, "length", &length, time.Second, time.Minute) }),
			Optional("list", func(n *yaml.Node) { d.List(n, "list", 2, func(*yaml.Node) {}) }),
			Optional("some", func(n *yaml.Node) { d.OneOrMore(n, "some", 2, func(*yaml.Node) {}) }),
		)
	}
	return d.Err()
}

func TestEveryMistakeHasItsPlaceAndItsHint(t *testing.T) {
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
		{"number: x", "f:1:9: number must be a whole number, not \"x\"\n  number: x\n          ^", plain},
		{"word: cpu", "f:1:1: the file lacks the key \"number\"\n  word: cpu\n  ^", plain},
		{"number: 2\nnumber: 3", "f:2:1: key \"number\" is repeated: it is already on line 1\n  number: 3\n  ^", plain},
		{"number: 2\nx: 3", "f:2:1: unknown key \"x\" in the file\n  x: 3\n  ^\n  allowed: number, word, length, list, some", plain},
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

func TestWhatIsRightIsTaken(t *testing.T) {
	const src = "number: &n 2\nword: cuda\nlength: 60s\nlist: [1, *n]\nsome: 1\n"
	if err := read(src, func(*Decoder) {}); err != nil {
		t.Error(err)
	}
}

func TestMistakesStandInTheOrderOfTheFile(t *testing.T) {
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

func TestAMistakeWithoutAPlace(t *testing.T) {
	d := New("", nil)
	d.Fail(nil, "yes", "no %d", 1)
	if err := d.Err(); err == nil || err.Error() != "no 1\n  yes" {
		t.Errorf("%q", err)
	}
}
