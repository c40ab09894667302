package main

import (
	"fmt"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/millrace/millrace/internal/app/replay"
)

// recordHeader is the number of bytes of a pcap file beside each packet's; a pcapng file has about
// twice as many. It makes a bar that counts packets come out even with a file's size.
const recordHeader = 16

// bar is the progress of a replay, in bytes of its files, on a terminal. Elsewhere it is silent.
type bar struct {
	bar   *progressbar.ProgressBar
	sizes []int64 // of each file, all laps
	laps  int
	lap   int // that the bar names
}

func newBar(c *console, cfg replay.Config) *bar {
	b := &bar{laps: cfg.Laps}
	if !c.live {
		return b
	}
	var all int64
	for _, path := range cfg.Files {
		var size int64
		if info, err := os.Stat(path); err == nil {
			size = info.Size() * int64(cfg.Laps)
		}
		b.sizes = append(b.sizes, size)
		all += size
	}
	b.bar = progressbar.NewOptions64(all,
		progressbar.OptionSetWriter(c.err),
		progressbar.OptionSetDescription("replay"),
		progressbar.OptionSetWidth(30),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)
	return b
}

// show moves the bar. A file whose packets are in memory has an exact position, also where it is compressed; the position
// in one that is streamed is estimated by the bytes of its packets.
func (b *bar) show(p replay.Progress) {
	if b.bar == nil {
		return
	}
	if b.laps > 1 && p.Lap != b.lap {
		b.lap = p.Lap
		b.bar.Describe(fmt.Sprintf("replay, lap %d of %d", p.Lap, b.laps))
	}
	at := min(int64(p.Bytes+recordHeader*p.Packets), b.sizes[p.File])
	if p.Done >= 0 {
		at = int64(min(p.Done, 1) * float64(b.sizes[p.File]))
	}
	for _, size := range b.sizes[:p.File] {
		at += size
	}
	_ = b.bar.Set64(at) // printing the result reports a terminal that is gone
}

// end removes the bar.
func (b *bar) end() {
	if b.bar != nil {
		_ = b.bar.Finish()
	}
}
