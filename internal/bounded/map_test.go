package bounded

import "testing"

func TestTheLastKeysAreKept(t *testing.T) {
	var m Map[int, string]
	const limit = 10
	if m.Get(1) != nil || m.Len() != 0 {
		t.Error("the zero value is not empty")
	}
	for i := range 3*limit + 3 {
		*m.Enter(i, limit) = "first"
		if v := m.Enter(i, limit); *v != "first" { // a key that is there is not new again
			t.Fatalf("key %d: %q", i, *v)
		}
		for k := range i + 1 {
			if kept := m.Get(k) != nil; kept != (k > i-limit) {
				t.Fatalf("after key %d: key %d is kept: %v", i, k, kept)
			}
		}
		if most := min(i+1, limit); m.Len() != most || len(m.order) != most {
			t.Fatalf("after key %d: %d keys, %d in order", i, m.Len(), len(m.order))
		}
	}
}
