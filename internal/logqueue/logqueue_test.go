package logqueue

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// pipe blocks each write until it is opened, as one whose reader has stopped.
type pipe struct {
	open chan struct{}
	mu   sync.Mutex
	text strings.Builder
}

func (p *pipe) Write(b []byte) (int, error) {
	<-p.open
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func note(n uint64) []byte { return fmt.Appendf(nil, "%d dropped\n", n) }

func TestAFullQueueDropsCountsAndReportsTheGap(t *testing.T) {
	p := &pipe{open: make(chan struct{})}
	w := New(p, 10*100, note)
	const records = 300
	for i := range records {
		if n, err := fmt.Fprintf(w, "%09d\n", i); n != 10 || err != nil {
			t.Fatalf("write: %d, %v", n, err)
		}
	}
	dropped := w.Dropped()
	if dropped < records-2*100 || dropped >= records {
		t.Errorf("%d of %d records dropped by a queue for 100", dropped, records)
	}
	if w.Close(10 * time.Millisecond) {
		t.Error("Close says that all is written while nothing can be")
	}
	close(p.open)
	if !w.Close(10 * time.Second) {
		t.Fatal("not all is written")
	}
	lines := strings.Split(strings.TrimSuffix(p.text.String(), "\n"), "\n")
	want, gap := uint64(0), uint64(0)
	for _, line := range lines {
		var n uint64
		if strings.HasSuffix(line, "dropped") {
			fmt.Sscanf(line, "%d dropped", &n)
			gap, want = gap+n, want+n
			continue
		}
		if fmt.Sscanf(line, "%d", &n); n != want {
			t.Fatalf("record %d, want %d: records must be whole, in order, and a gap reported where it is", n, want)
		}
		want++
	}
	if gap != dropped || want != records {
		t.Errorf("gaps of %d records and %d of %d records seen; Dropped says %d", gap, want, records, dropped)
	}
	if fmt.Fprintln(w, "late"); w.Dropped() != dropped+1 {
		t.Error("a record after Close is not counted as dropped")
	}
}

func TestRecordsAreWrittenWithoutClose(t *testing.T) {
	p := &pipe{open: make(chan struct{})}
	close(p.open)
	w := New(p, 1000, note)
	for i := range 3 {
		fmt.Fprintln(w, "record", i)
		for range 1000 {
			p.mu.Lock()
			done := strings.Contains(p.text.String(), fmt.Sprint("record ", i))
			p.mu.Unlock()
			if done {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if got := p.text.String(); got != "record 0\nrecord 1\nrecord 2\n" {
		t.Errorf("written: %q", got)
	}
}

func TestAGapIsReportedOnce(t *testing.T) {
	p := &pipe{open: make(chan struct{})}
	w := New(p, 10, note)
	for range 10 {
		fmt.Fprintln(w, "record")
	}
	close(p.open)
	for range 1000 {
		p.mu.Lock()
		done := strings.Contains(p.text.String(), "dropped")
		p.mu.Unlock()
		if done {
			break
		}
		time.Sleep(time.Millisecond)
	}
	fmt.Fprintln(w, "later")
	if !w.Close(10*time.Second) || strings.Count(p.text.String(), "dropped") != 1 || !strings.HasSuffix(p.text.String(), "later\n") {
		t.Errorf("written: %q", p.text.String())
	}
}

// stuck returns a writer with this limit whose first record is being written, and the pipe that keeps it there.
func stuck(t *testing.T, limit int, note func(uint64) []byte) (*Writer, *pipe) {
	t.Helper()
	p := &pipe{open: make(chan struct{})}
	w := New(p, limit, note)
	fmt.Fprint(w, "first\n")
	for range 10_000 {
		w.mu.Lock()
		busy := w.writing > 0
		w.mu.Unlock()
		if busy {
			return w, p
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("nothing is written")
	return nil, nil
}

// What waits fills the limit to the byte, and not beyond.
func TestTheLimitIsInBytes(t *testing.T) {
	w, p := stuck(t, 10, note)
	for _, record := range []string{"12345\n", "12345\n", "123\n", "\n"} {
		fmt.Fprint(w, record)
	}
	if n := w.Dropped(); n != 2 {
		t.Errorf("%d records dropped, want those of 6 bytes and of 1 that find 6 and 10 of 10", n)
	}
	close(p.open)
	if !w.Close(10*time.Second) || p.text.String() != "first\n12345\n123\n2 dropped\n" {
		t.Errorf("written: %q", p.text.String())
	}
}

func TestWithoutANoteAGapIsSilent(t *testing.T) {
	w, p := stuck(t, 6, nil)
	fmt.Fprint(w, "12345\n")
	fmt.Fprint(w, "lost\n")
	close(p.open)
	if !w.Close(10*time.Second) || p.text.String() != "first\n12345\n" || w.Dropped() != 1 {
		t.Errorf("written: %q, %d dropped", p.text.String(), w.Dropped())
	}
}

// Close ends the goroutine of a writer that has nothing to write.
func TestCloseEndsTheGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	var all []*Writer
	for range 20 {
		all = append(all, New(io.Discard, 10, nil))
	}
	time.Sleep(10 * time.Millisecond) // they wait for records
	for _, w := range all {
		w.Close(time.Second)
	}
	for range 10_000 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
}

// writes is what each write got.
type writes struct {
	mu  sync.Mutex
	all [][]byte
}

func (w *writes) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, bytes.Clone(p))
	return len(p), nil
}

func (w *writes) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.all)
}

// Records that wait for others are written with them: at the end, when they fill a quarter of the buffer, or after the time.
func TestRecordsGather(t *testing.T) {
	for name, tc := range map[string]struct {
		gather  time.Duration
		records int
		close   bool
		most    int // writes
	}{
		"at the end":             {time.Hour, 20, true, 1},
		"a quarter of the limit": {time.Hour, 26, false, 2},
		"after the time":         {time.Millisecond, 20, false, 20},
	} {
		t.Run(name, func(t *testing.T) {
			var to writes
			w := New(&to, 1000, nil)
			w.Gather(tc.gather)
			for i := range tc.records {
				fmt.Fprintf(w, "%09d\n", i)
			}
			if tc.close && !w.Close(time.Minute) {
				t.Error("not all is written")
			}
			eventually(t, "the records are not written", func() bool { return w.Waiting() == 0 })
			if n := to.count(); n < 1 || n > tc.most {
				t.Errorf("%d writes of %d records", n, tc.records)
			}
			if got := bytes.Count(bytes.Join(to.all, nil), []byte("\n")); got != tc.records || w.Dropped() != 0 {
				t.Errorf("%d records, %d dropped", got, w.Dropped())
			}
			if !w.Close(time.Minute) {
				t.Error("not all is written at the end")
			}
		})
	}
}
