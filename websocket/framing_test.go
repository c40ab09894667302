package websocket

import (
	"bytes"
	"testing"
)

// Framing knows after each byte whether a frame ends there, whatever the lengths and however the bytes are cut.
func TestFraming(t *testing.T) {
	for _, role := range []Role{Server, Client} {
		m := NewMachine(role, MachineOptions{})
		var all []byte
		ends := map[int]bool{0: true}
		for _, n := range []int{0, 1, 125, 126, 127, 65535, 65536} {
			var err error
			if all, err = m.AppendMessage(all, Binary, bytes.Repeat([]byte{0x88}, n)); err != nil {
				t.Fatal(err)
			}
			ends[len(all)] = true
		}
		for _, size := range []int{1, 2, 3, 7, 1000} {
			var f Framing
			for at := 0; at < len(all); {
				n := min(size, len(all)-at)
				f.Pass(all[at : at+n])
				if at += n; f.Between() != ends[at] || f.Closed() {
					t.Fatalf("%s by %d bytes, after %d: between frames %v, want %v; closed %v", role, size, at, f.Between(), ends[at], f.Closed())
				}
			}
		}
	}
}

// A Close frame has begun once its header is complete.
func TestFramingSeesClose(t *testing.T) {
	var f Framing
	frame, err := NewMachine(Client, MachineOptions{}).AppendClose(nil, CloseNormal, "bye")
	if err != nil {
		t.Fatal(err)
	}
	f.Pass(frame[:5])
	if f.Closed() || f.Between() {
		t.Error("a header that is cut counts")
	}
	if f.Pass(frame[5:6]); !f.Closed() || f.Between() {
		t.Error("a complete header does not count")
	}
	if f.Pass(frame[6:]); !f.Closed() || !f.Between() {
		t.Error("the frame has not ended")
	}
}
