package inspection

import (
	"io"
	"os"
	"sync"

	"github.com/millrace/millrace/capture"
)

// packetFile is a pcapng with the packets of alerts, up to a size. It is used by all loops.
type packetFile struct {
	out  *output
	info os.FileInfo // of a file; nil is none

	mu    sync.Mutex // held while a block is put together, never while one is written
	w     *capture.Writer
	size  int64
	most  int64
	lost  uint64 // packets beyond the size
	count uint64
	next  *packetFile // took the place of this one
}

// packetBuffer is the number of bytes of packets that may wait for the disk.
const packetBuffer = 8 << 20

// newPacketFile appends a section to an open file, which has size bytes, until it has most.
func newPacketFile(path string, to io.WriteCloser, size, most int64) (*packetFile, error) {
	f := &packetFile{out: newOutput(path, to, packetBuffer), info: infoOf(to)}
	return f, f.begin(size, most)
}

// succeed appends a section to an open file after was, whose packets go to the new section from then on. Where both are of one
// file, what was has not written yet counts as well, or the two together could exceed most. The disk is asked before the lock.
func (f *packetFile) succeed(path string, to io.WriteCloser, most int64) (*packetFile, error) {
	f.mu.Lock()
	waiting, end := int64(f.out.queue.Waiting()), f.end()
	f.mu.Unlock()
	size, info := sizeOf(path), infoOf(to)
	same := f.info != nil && info != nil && os.SameFile(f.info, info)
	out := newOutput(path, to, packetBuffer)
	f.mu.Lock()
	defer f.mu.Unlock()
	if same {
		size += waiting + f.end() - end
	}
	next := &packetFile{out: out, info: info, count: f.count, lost: f.lost}
	if err := next.begin(size, most); err != nil {
		return nil, err
	}
	f.next = next
	return next, nil
}

// end is the size of the file when all is written. The caller holds the lock.
func (f *packetFile) end() int64 {
	if f.w == nil {
		return f.size
	}
	return f.size + f.w.Written()
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
	if f.next != nil { // a loop had f still
		f.next.write(at, frame, comment)
		return
	}
	const overhead = 64 // of a block
	if f.w == nil || f.end()+int64(len(frame)+len(comment)+overhead) > f.most {
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

// infoOf returns what tells one file from another, or nil for what is none.
func infoOf(to io.WriteCloser) os.FileInfo {
	file, ok := to.(*os.File)
	if !ok {
		return nil
	}
	info, err := file.Stat()
	if err != nil {
		return nil
	}
	return info
}

// sizeOf returns the size of a file that may not be there.
func sizeOf(path string) int64 {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	return info.Size()
}
