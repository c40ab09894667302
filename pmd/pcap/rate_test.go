package pcap

import (
	"slices"
	"testing"
	"time"
)

// TestNoGapIsLongerThanTheLongest paces packets whose capture times are 0, 10, 5, 40, 41 ms apart from the first, in laps.
func TestNoGapIsLongerThanTheLongest(t *testing.T) {
	ms := func(n int64) int64 { return n * 1e6 }
	r := Rate{Speed: 2, MaxGap: 4 * time.Millisecond}
	c := pacer{}
	var waits []float64
	for range 2 {
		for _, at := range []int64{0, 10, 5, 40, 41} {
			c.add(&r, 100, ms(at))
			waits = append(waits, (c.wait+float64(c.start))/1e6)
		}
		c.lap()
	}
	// 10 ms at twice the speed are 5, cut to 4; 5 ms is before; 30 ms are 15, cut to 4; 1 ms is 0.5.
	want := []float64{0, 4, 1.5, 8, 8.5, 8.5, 12.5, 10, 16.5, 17}
	if !slices.Equal(waits, want) {
		t.Errorf("due at %v ms, want %v", waits, want)
	}
	for _, bad := range []Rate{{MaxGap: 1}, {Packets: 1, MaxGap: 1}, {Speed: 1, MaxGap: -1}} {
		if bad.check() == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}
