package defence

import (
	"sync"
	"testing"
)

// A driver's loss of its interface comes beside the look for interfaces that have come back: for the race detector.
func TestReattachBesideGone(t *testing.T) {
	d := &Defence{devices: []*device{{name: "a", opened: true}}}
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 1000 {
			d.reattach()
		}
	})
	wg.Go(func() {
		for range 1000 {
			d.Gone("a")
		}
	})
	wg.Wait()
}
