package role

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/bench/harness"
)

// runProgram plays role run with a program of sh, asks for its counters once, and returns what was told.
func runProgram(t *testing.T, flags []string, program string) []harness.Mark {
	t.Helper()
	in, feed := io.Pipe()
	var out strings.Builder
	done := make(chan error, 1)
	go func() {
		done <- playRole(append(append([]string{"run"}, flags...), "--", "sh", "-c", program), in, &out)
	}()
	if _, err := io.WriteString(feed, "mark\n"); err != nil {
		t.Fatal(err)
	}
	feed.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return decodeMarks(t, []byte(out.String()))
}

func TestAProgramIsReadyWhenItAcceptsConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	l.Close()
	due := time.Now().Add(300 * time.Millisecond)
	time.AfterFunc(300*time.Millisecond, func() { // in the place of the program
		if l, err := net.Listen("tcp", at); err == nil {
			time.AfterFunc(5*time.Second, func() { l.Close() })
		}
	})
	marks := runProgram(t, []string{"-at", at}, "exec sleep 60")
	if now := time.Now(); now.Before(due) {
		t.Errorf("ready at %v, before anything accepted connections at %v", now, due)
	}
	if ms := marks[1].Counts[harness.StartMS]; ms < 290 {
		t.Errorf("%s is %d, want 300 or more", harness.StartMS, ms)
	}
}

func TestAProgramThatNeverAcceptsIsNotWaitedForOnceItHasEnded(t *testing.T) {
	err := playRole([]string{"run", "-at", "127.0.0.1:1", "--", "sh", "-c", "echo no such file; exit 1"}, strings.NewReader(""), io.Discard)
	if err == nil || !strings.Contains(err.Error(), "ended early: no such file") {
		t.Errorf("error %v, want what the program said", err)
	}
}

// A program's children count: their CPU time, and their memory.
func TestTheChildrenOfAProgramCount(t *testing.T) {
	busy := `i=0; while [ $i -lt %d ]; do i=$((i+1)); done; echo ready; exec sleep 10`
	alone := runProgram(t, nil, "exec sleep 60")
	family := runProgram(t, []string{"-ready", "ready"}, fmt.Sprintf("(%s) & wait", fmt.Sprintf(busy, 200_000)))
	a, f := alone[1], family[1]
	if f.CPU < a.CPU+int64(20*time.Millisecond) {
		t.Errorf("%v of CPU time with a child that counted to 200 000, %v alone", time.Duration(f.CPU), time.Duration(a.CPU))
	}
	if f.Counts["rss"] <= a.Counts["rss"] || a.Counts["rss"] == 0 {
		t.Errorf("%d bytes resident with a child, %d alone", f.Counts["rss"], a.Counts["rss"])
	}
	if f.Counts[RSSAtStart] == 0 {
		t.Error("nothing was resident at the start")
	}
}
