package expr

import (
	"errors"
	"math/rand/v2"
	"testing"
)

// FuzzCompile compiles any text for any link type. All forms of a filter agree on the packet; an error
// points into the text.
func FuzzCompile(f *testing.F) {
	rng := rand.New(rand.NewPCG(2, 2))
	packets := zoo(LinkEthernet, 60)
	for i := range 60 {
		g := generator{rng, generatedLinks[i%len(generatedLinks)]}
		f.Add(g.expression(2), uint16(g.link), byte(i), packets[i].data)
	}
	f.Fuzz(func(t *testing.T, text string, link uint16, flags byte, data []byte) {
		if len(text) > 2000 {
			return
		}
		opts := Options{Names: testNames, Source: Source(flags & 3 % 3)}
		c, err := Compile(text, LinkType(link), opts)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Offset < 0 || e.Offset+e.Length > len(text)+1 || e.Text != text {
				t.Fatalf("%q: %#v", text, err)
			}
			_ = e.Excerpt()
			return
		}
		_ = c.Tree()
		length := len(data) + int(flags>>4)*100
		got := c.Match(data, length)
		prog, err := c.CBPF()
		if err != nil {
			if !errors.Is(err, ErrTooLong) && !errors.Is(err, ErrTooDeep) {
				t.Fatal(err)
			}
			return
		}
		_ = Disassemble(prog)
		if want := interpret(prog, data, uint32(length), nil) != 0; got != want {
			t.Errorf("%q on %v: Match %v, classic BPF %v\n%s%s%x", text, c.LinkType(), got, want, c.Tree(), Disassemble(prog), data)
		}
	})
}
