package cc

import (
	"testing"
	"unsafe"
)

func TestControllersAreUsedAgain(t *testing.T) {
	var p Pool
	take := func(name string) Controller {
		c, err := p.New(name, 1000)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := take("")
	first.OnEvent(0, Timeout, 5000)
	p.Put(first)
	if c := take("reno"); c == first {
		t.Error("a controller of another kind")
	}
	second := take("cubic")
	if second != first {
		t.Error("a new one, though one was free")
	}
	if second.Window() != Initial(1000) || second.Threshold() != infiniteThreshold || second.(*cubic).avoidance != nil {
		t.Errorf("%+v remembers", second)
	}
	if c := take(""); c == first {
		t.Error("the same one twice")
	}
	if _, err := p.New("no such", 1000); err != ErrUnknown {
		t.Error(err)
	}
	for range maxSpare + 1 {
		p.Put(newCubic(1000))
	}
	if len(p.cubics) != maxSpare {
		t.Errorf("%d wait", len(p.cubics))
	}
	if n := testing.AllocsPerRun(100, func() { p.Put(take("")) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A connection has a controller as long as it lives, most of them idle, so it is small. It fills its cache line,
// since loops on different cores would write a shared one with each ACK.
func TestControllersAreOneCacheLine(t *testing.T) {
	if n := unsafe.Sizeof(cubic{}); n != 64 {
		t.Errorf("cubic begins with %d bytes", n)
	}
}
