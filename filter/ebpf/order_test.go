package ebpf

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/cilium/ebpf/btf"
)

// Numbers in network byte order are shown as they are meant, and are written back as they were.
func TestNumbersInNetworkOrder(t *testing.T) {
	number := func(size uint32) btf.Type { return &btf.Int{Name: "n", Size: size} }
	for _, c := range []struct {
		t    btf.Type
		b    []byte
		want string
	}{
		{&btf.Typedef{Name: "__be16", Type: number(2)}, []byte{0, 80}, "80"},
		{&btf.Typedef{Name: "__be32", Type: number(4)}, []byte{198, 18, 0, 1}, fmt.Sprint(198<<24 | 18<<16 | 1)},
		{&btf.Typedef{Name: "__be64", Type: number(8)}, []byte{0, 0, 0, 0, 0, 0, 1, 0}, "256"},
		{&btf.Const{Type: &btf.Typedef{Name: "address", Type: &btf.Typedef{Name: "__be16", Type: number(2)}}}, []byte{1, 0}, "256"},
	} {
		text, err := json.Marshal(decode(c.t, c.b))
		if err != nil || string(text) != c.want {
			t.Errorf("%v: %s, %v, want %s", c.t, text, err, c.want)
		}
		v, err := parseJSON(text)
		back := make([]byte, len(c.b))
		if err == nil {
			err = encode(c.t, v, back, "value")
		}
		if err != nil || !bytes.Equal(back, c.b) {
			t.Errorf("%v: written back as %x, %v, want %x", c.t, back, err, c.b)
		}
	}
	if text, _ := json.Marshal(decode(&btf.Typedef{Name: "__u16", Type: number(2)}, []byte{1, 0})); littleEndian && string(text) != "1" {
		t.Errorf("a number of the host: %s", text)
	}
}
