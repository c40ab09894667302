package inspection

import (
	"io"
	"os"
	"sync"

	"github.com/millrace/millrace/capture"
)

// packetFile is a pcapng with the packets of alerts, up to a size. It is used by all loops.
type packetFile struct {
	out *output

	mu    sync.Mutex // held while a block is put together, never while one is written
	w     *capture.Writer
	size  int64
	most  int64
	lost  uint64 // packets beyond the size
	count uint64
}

// packetBuffer is how many bytes of packets may wait for the disk.
const packetBuffer = 8 << 20

// newPacketFile appends a section to an open file, which has size bytes, until it has most.
func newPacketFile(path string, to io.WriteCloser, size, most int64) (*packetFile, error) {
	f := &packetFile{out: newOutput(path, to, packetBuffer)}
	return f, f.begin(size, most)
}

// begin starts a section: of a new file, or of one that has others (pcapng 3.2).
func (f *packetFile) begin(size, most int64) (err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.size, f.most = size, most
	if size >= most {
		f.w = nil
		return nil
	}
	f.w, err = capture.NewWriter(f.out.queue, capture.WriterConfig{
		Format: capture.FormatPcapng, Interfaces: []capture.Interface{{Name: "millrace", LinkType: capture.LinkTypeEthernet}},
		Application: "millrace gateway", Comment: "packets of alerts",
	})
	if err == nil {
		err = f.w.Flush()
	}
	return err
}

// write adds a packet with a comment. It does not wait: Flush hands one whole block to the queue.
func (f *packetFile) write(at int64, frame []byte, comment []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	const overhead = 64 // of a block
	if f.w == nil || f.size+f.w.Written()+int64(len(frame)+len(comment)+overhead) > f.most {
		f.lost++
		return
	}
	r := capture.Record{Time: at, Data: frame, Meta: capture.Meta{Has: capture.HasComment, Comment: comment}}
	if f.w.Write(&r) != nil || f.w.Flush() != nil {
		f.lost++
		return
	}
	f.count++
}

func (f *packetFile) counts() (written, lost uint64) {
	if f == nil {
		return 0, 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count, f.lost
}

// sizeOf returns the size of a file that may not be there.
func sizeOf(path string) int64 {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	return info.Size()
}
