package accesslog

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/logqueue"
)

// messages is a log that several goroutines write.
type messages struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (m *messages) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.b.Write(p)
}

func (m *messages) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.b.String()
}

// TestLinesOfAReplacedOutputAreCounted covers a server that is away and a full disk: what they lose after a reload is counted, too.
func TestLinesOfAReplacedOutputAreCounted(t *testing.T) {
	for name, o := range map[string]Options{
		"server": {Syslog: Syslog{Network: "tcp", Address: "127.0.0.1:1", Facility: "local0", App: "test"}}, "disk": {Path: "/dev/full"},
	} {
		t.Run(name, func(t *testing.T) {
			var log messages
			o.Layout, o.Log, o.Buffer = inJSON(t).opt.Layout, slog.New(slog.NewTextHandler(&log, nil)), 1<<20
			target, err := Open(&o)
			if err != nil {
				t.Fatal(err)
			}
			l := Use(o, target, nil)
			var lines Lines
			for range 5 {
				lines.Write(l, 0, &full)
			}
			for i := range 3 { // the count survives outputs that are removed
				l = inFile(t, Options{Path: filepath.Join(t.TempDir(), "next"), Buffer: 1<<19 + i}, l)
				for end := time.Now().Add(30 * time.Second); l.Dropped() != 5 && time.Now().Before(end); {
					time.Sleep(time.Millisecond)
				}
				if n := l.Dropped(); n != 5 {
					t.Fatalf("after reload %d: %d lines are counted", i, n)
				}
			}
			for end := time.Now().Add(30 * time.Second); !strings.Contains(log.String(), "dropped_lines=5") && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			if !strings.Contains(log.String(), "dropped_lines=5") {
				t.Errorf("the log has %s", &log)
			}
			if l.Close(); l.Dropped() != 5 {
				t.Errorf("%d at the end", l.Dropped())
			}
		})
	}
}

// TestOneOfTwoProcessesRotates has two logs write one file, as during an upgrade.
func TestOneOfTwoProcessesRotates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	o := Options{Path: path, Rotate: logqueue.Rotation{Size: 4096, Keep: 100}}
	old, next := inFile(t, o, nil), inFile(t, o, nil)
	old.StopRotating()
	var lines Lines
	for range 100 {
		lines.Write(old, 0, &full)
	}
	old.Close()
	if _, err := os.Stat(path + ".1"); err == nil {
		t.Error("the process that drains has rotated the file")
	}
	next.Close()
	if n := len(objects(t, path)); n != 100 {
		t.Errorf("%d lines", n)
	}
}
