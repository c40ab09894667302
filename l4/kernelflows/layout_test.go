package kernelflows

import (
	"testing"
	"unsafe"

	"github.com/cilium/ebpf/btf"
)

// The compiler's description of the C types is the judge of those in Go.
func TestLayout(t *testing.T) {
	spec, err := loadFlows()
	if err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]uintptr{
		"key4": unsafe.Sizeof(key4{}), "key6": unsafe.Sizeof(key6{}), "entry": unsafe.Sizeof(entry{}),
		"direction": unsafe.Sizeof(direction{}), "progress": unsafe.Sizeof(progress{}), "slot": unsafe.Sizeof(slot{}),
	} {
		if s := structOf(t, spec.Types, name); uintptr(s.Size) != size {
			t.Errorf("%s has %d bytes in C and %d in Go", name, s.Size, size)
		}
	}
	var d direction
	var p progress
	offsets := map[string]map[string]uintptr{
		"direction": {
			"generation": unsafe.Offsetof(d.generation), "loop": unsafe.Offsetof(d.loop), "out": unsafe.Offsetof(d.out),
			"max_len": unsafe.Offsetof(d.maxLen), "sport": unsafe.Offsetof(d.sport), "dport": unsafe.Offsetof(d.dport),
			"l3": unsafe.Offsetof(d.l3), "ports": unsafe.Offsetof(d.ports), "src": unsafe.Offsetof(d.src), "dst": unsafe.Offsetof(d.dst),
			"next_hop": unsafe.Offsetof(d.nextHop), "out_mac": unsafe.Offsetof(d.outMAC), "to": unsafe.Offsetof(d.to), "from": unsafe.Offsetof(d.from),
			"src6": unsafe.Offsetof(d.src6), "dst6": unsafe.Offsetof(d.dst6), "any_from": unsafe.Offsetof(d.anyFrom),
			"scale": unsafe.Offsetof(d.scale), "loose": unsafe.Offsetof(d.loose), "to_peer": unsafe.Offsetof(d.toPeer),
		},
		"progress": {
			"bytes": unsafe.Offsetof(p.bytes), "last": unsafe.Offsetof(p.last), "end": unsafe.Offsetof(p.end),
			"limit": unsafe.Offsetof(p.limit), "window": unsafe.Offsetof(p.window), "acked": unsafe.Offsetof(p.acked),
		},
	}
	for name, fields := range offsets {
		found := 0
		for _, m := range structOf(t, spec.Types, name).Members {
			if at, ok := fields[m.Name]; ok {
				found++
				if uintptr(m.Offset.Bytes()) != at {
					t.Errorf("%s.%s is at %d in C and at %d in Go", name, m.Name, m.Offset.Bytes(), at)
				}
			}
		}
		if found != len(fields) {
			t.Errorf("%s: %d of %d fields found", name, found, len(fields))
		}
	}
}

func structOf(t *testing.T, types *btf.Spec, name string) (s *btf.Struct) {
	t.Helper()
	if err := types.TypeByName(name, &s); err != nil {
		t.Fatal(err)
	}
	return s
}
