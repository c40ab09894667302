package xdp

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// fakeLink is an attachment that the kernel need not permit.
type fakeLink struct {
	function, pinned string
	closed           bool
}

func (l *fakeLink) Pin(path string) error { l.pinned = path; return os.WriteFile(path, nil, 0o600) }
func (l *fakeLink) Close() error          { l.closed = true; return nil }

// fakeAttachments replaces attachments to dispatchers by fakes, which it returns in their order.
func fakeAttachments(t *testing.T) *[]*fakeLink {
	t.Helper()
	list := new([]*fakeLink)
	was := attachComponent
	t.Cleanup(func() { attachComponent = was })
	attachComponent = func(_ *ebpf.Program, function string, _ *ebpf.Program) (attachment, error) {
		l := &fakeLink{function: function}
		*list = append(*list, l)
		return l, nil
	}
	return list
}

// testFS returns a BPF file system of the test's own.
func testFS(t *testing.T) *FS {
	t.Helper()
	f, err := OpenFS(t.TempDir())
	if errors.Is(err, unix.EPERM) && os.Getenv("MILLRACE_MUST_NETNS") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(f.root, unix.MNT_DETACH) })
	return f
}

// The attachment of a member of this process is held by it and not pinned, so that the kernel ends it with the process, in
// each dispatcher that the process builds. Others are pinned. A pin of each name is there, which libxdp removes.
func TestAttachmentsOfMembersAreHeld(t *testing.T) {
	f, links := testFS(t), fakeAttachments(t)
	prog, err := newDispatcher(&config{count: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	m := &Member{fs: f, id: 7, alive: -1, netns: -1}
	m.register()
	list := []Component{{ID: 6, prog: prog}, {ID: 7, prog: prog}}
	if err := os.MkdirAll(f.dispatchers(), 0o700); err != nil {
		t.Fatal(err)
	}
	pin := func(dispatcher uint32) []heldLink {
		// The file system takes pins of BPF objects alone: that of the fake fails, and so comes last here.
		held, err := f.pin(1, dispatcher, prog, list[1:])
		if err != nil {
			t.Fatal(err)
		}
		names, _ := filepath.Glob(filepath.Join(f.folder(1, dispatcher), "*"))
		if got := strings.Join(names, " "); len(names) != 2 || !strings.HasSuffix(names[0], "prog0-link") || !strings.HasSuffix(names[1], "prog0-prog") {
			t.Errorf("pinned are %s", got)
		}
		return held
	}
	first := pin(100)
	holdOrClose(first, true)
	if l := (*links)[0]; l.closed || l.pinned != "" || m.link != attachment(l) {
		t.Errorf("the first attachment: %+v, held %v", l, m.link)
	}
	lost := pin(101) // another loader was faster
	holdOrClose(lost, false)
	if l := (*links)[1]; !l.closed || (*links)[0].closed {
		t.Errorf("of a dispatcher that was not attached: %+v, the one before %+v", l, (*links)[0])
	}
	holdOrClose(pin(102), true)
	if !(*links)[0].closed || (*links)[2].closed {
		t.Errorf("after the next dispatcher: %+v, %+v", (*links)[0], (*links)[2])
	}
	if _, err := f.pin(1, 103, prog, list[:1]); err == nil || (*links)[3].pinned == "" || !(*links)[3].closed {
		t.Errorf("the attachment of another's component: %v, %+v", err, (*links)[3])
	}
	if err := m.release(); err != nil || !(*links)[2].closed || memberOf(7) != nil {
		t.Errorf("after the end: %v, %+v", err, (*links)[2])
	}
}
