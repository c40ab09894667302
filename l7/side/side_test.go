package side

import "testing"

func TestKindOfStream(t *testing.T) {
	kinds := map[Kind]bool{
		Head: true, Data: true, End: true, Writable: true, Failed: true, Malformed: true, Late: true,
		Refused: false, Stuck: false, Settings: false, Leaving: false, Useless: false, Closed: false,
	}
	for k := Head; k <= Closed; k++ {
		want, listed := kinds[k]
		if !listed {
			t.Errorf("kind %d is not in the list", k)
		}
		if got := k.OfStream(); got != want {
			t.Errorf("kind %d: of a stream %v, want %v", k, got, want)
		}
	}
}
