package health

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// commandOf writes a shell script and returns a check that runs it.
func commandOf(t *testing.T, text string, args ...string) *Check {
	t.Helper()
	path := filepath.Join(t.TempDir(), "check")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	c := New()
	c.Type, c.Command, c.Interval, c.Timeout = TypeCommand, append([]string{path}, args...), time.Minute, 20*time.Second
	if p := c.Validate(); len(p) > 0 {
		t.Fatal(p)
	}
	return c
}

func TestACommandsEndIsItsAnswer(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"0", "exit 0", ""},
		{"another", "exit 3", "the command fails: exit status 3"},
		{"with words", "echo; echo '  no disk  left' >&2; echo more; exit 1", "the command fails: exit status 1: no disk  left"},
		{"with words that would move the cursor", `printf 'a\033[2Jb\377\n'; exit 1`, "exit status 1: a [2Jb?"},
		{"killed", "kill -9 $$", "the command fails: signal: killed"},
		{"output without end", "yes | head -c 5000000; exit 1", "exit status 1: y"},
		{"input is empty", "read x && exit 1; exit 0", ""},
		{"the working directory is /", `test "$(pwd)" = /`, ""},
		{"arguments are not split", `test "$#-$1" = "2-two words"`, ""},
		{"the environment", `test "$MILLRACE_BACKEND_ADDRESS $MILLRACE_BACKEND_PORT $MILLRACE_BACKEND_NAME $MILLRACE_BACKEND_SERVICE" = "198.18.2.1 80 b1 web"`, ""},
		{"nothing else of it", `test -z "$MILLRACE_TEST_SECRET"`, ""},
		{"what it leaves in its group is no obstacle", "sleep 60 & exit 0", ""},
		{"nor what it leaves outside", "setsid sleep 25 & exit 0", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("MILLRACE_TEST_SECRET", "x")
			expect(t, once(t, commandOf(t, c.text, "two words", ";"), first), c.want)
		})
	}
}

func TestOnlyTheStartOfTheOutputIsKept(t *testing.T) {
	h, long := &head{}, strings.Repeat("a", 300)
	for range 1000 {
		if n, err := h.Write([]byte(long)); n != len(long) || err != nil {
			t.Fatal(n, err)
		}
	}
	if len(h.b) != maxOutput {
		t.Errorf("%d bytes are kept, want %d", len(h.b), maxOutput)
	}
}

func TestACommandThatCannotBeRunIsUnhealthy(t *testing.T) {
	c := commandOf(t, "")
	os.WriteFile(c.Command[0], []byte("#!/nowhere/sh\n"), 0o700)
	if err := once(t, c, first); !errors.Is(err, ErrCommand) {
		t.Error(err)
	}
	os.Remove(c.Command[0])
	if err := once(t, c, first); !errors.Is(err, ErrCommand) || !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// forking writes the numbers of its processes to a file and sleeps: one in the foreground, two in
// the background, one of them a grandchild that ignores signals.
const forking = `echo $$ >>"$1"
trap '' TERM INT HUP
sh -c 'trap "" TERM INT HUP; echo $$ >>"$1"; sleep 1000 & echo $! >>"$1"; wait' x "$1" &
echo $! >>"$1"
echo ready >>"$1"
sleep 1000`

// alive returns which of the processes noted in a file are alive: not gone, and not dead either.
func alive(t *testing.T, file string) (pids []int) {
	t.Helper()
	text, _ := os.ReadFile(file)
	for word := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if i := strings.LastIndex(string(stat), ") "); err == nil && stat[i+2] != 'Z' && stat[i+2] != 'X' {
			pids = append(pids, pid)
		}
	}
	return pids
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for range 2000 {
		if f() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s: not in 20 s", what)
}

func TestACommandThatForksAndHangsIsKilledWhole(t *testing.T) {
	for _, how := range []string{"timeout", "stop"} {
		t.Run(how, func(t *testing.T) {
			pids := filepath.Join(t.TempDir(), "pids")
			c := commandOf(t, forking, pids)
			c.Timeout = 3 * time.Second
			ctx, stop := context.WithTimeout(t.Context(), c.Timeout)
			defer stop()
			done := make(chan error)
			go func() { done <- cause(ctx, newProbe(c, nil)(ctx, Target{}), c.Timeout) }()
			eventually(t, "four processes", func() bool { return len(alive(t, pids)) >= 3 })
			if how == "stop" {
				stop()
			}
			if err := <-done; errors.Is(err, ErrTimeout) != (how == "timeout") || err == nil {
				t.Errorf("%v", err)
			}
			eventually(t, "no process", func() bool { return len(alive(t, pids)) == 0 })
		})
	}
}

// What a program that ended in time leaves behind in its group does not outlive the probe.
func TestTheRestOfTheGroupIsKilledToo(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	expect(t, once(t, commandOf(t, `sleep 1000 & echo $! >"$1"; exit 0`, pids), first), "")
	eventually(t, "no process", func() bool { return len(alive(t, pids)) == 0 })
}

func TestCommandsLeaveNoZombiesAndNoMoreThanAllowedRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	c := commandOf(t, `echo + >>"$1"; sleep 0.02; echo - >>"$1"`, file)
	c.Interval, c.Timeout = 50*time.Millisecond, 50*time.Millisecond
	var list []Watch
	for i := range 40 {
		w := watchOf(i, first, c)
		w.Backend = fmt.Sprint(i)
		list = append(list, w)
	}
	k := NewChecker(Options{Commands: 6})
	k.Set(list)
	var most int
	var mu sync.Mutex
	eventually(t, "200 runs", func() bool {
		k.mu.Lock()
		running := k.limiters[commands].running + k.limiters[suspectCommands].running
		k.mu.Unlock()
		mu.Lock()
		most = max(most, running)
		mu.Unlock()
		text, _ := os.ReadFile(file)
		return strings.Count(string(text), "+") > 200
	})
	k.Close()
	if most > 6 || most < 3 {
		t.Errorf("%d commands at once, allowed are 6", most)
	}
	if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err != unix.ECHILD {
		t.Errorf("children are left: %d, %v", pid, err)
	}
}
