package main

import (
	"os"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/millrace/millrace/internal/replay"
)

// recordHeader is how many bytes of a pcap file stand beside each packet's; a pcapng file has about
// twice as many. It makes a bar that counts packets come out even with a file's size.
const recordHeader = 16

// bar is the progress of a replay, in bytes of its files, on a terminal. Elsewhere it is silent.
type bar struct {
	bar   *progressbar.ProgressBar
	sizes []int64 // of each file, all laps
}

func newBar(c *console, cfg replay.Config) *bar {
	b := &bar{}
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
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)
	return b
}

// show moves the bar to a place within a file.
func (b *bar) show(file int, packets, bytes uint64) {
	if b.bar == nil {
		return
	}
	at := min(int64(bytes+recordHeader*packets), b.sizes[file])
	for _, size := range b.sizes[:file] {
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
