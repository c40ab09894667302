package collective

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// free returns an address of the loopback interface that nothing listens on.
func free(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// group connects n ranks over TCP and calls do for each of them, in a goroutine of its own.
func group(t testing.TB, n int, change func(*Config), do func(c *Comm) error) []error {
	t.Helper()
	address := free(t)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() {
			cfg := Config{Rank: r, Size: n, Address: address, Timeout: 20 * time.Second}
			if change != nil {
				change(&cfg)
			}
			c, err := Connect(context.Background(), cfg)
			if err != nil {
				errs[r] = err
				return
			}
			if errs[r] = do(c); errs[r] == nil {
				errs[r] = c.Close()
			}
		})
	}
	wg.Wait()
	return errs
}

// rankOf is what a process of a test does, in its environment.
type rankOf struct {
	Config
	Signal syscall.Signal // that rank Victim sends to itself in the middle; 0 is none
	Victim int
}

const rankVariable = "MILLRACE_TEST_RANK"

// processes runs ranks as processes of this test's program, and returns the errors that they print.
func processes(t *testing.T, n int, of rankOf) []*Error {
	t.Helper()
	errs := make([]*Error, n)
	victim, kill := context.WithCancel(t.Context())
	defer kill()
	var wg sync.WaitGroup
	of.Address, of.Size = free(t), n
	for r := range n {
		of.Rank = r
		text, err := json.Marshal(of)
		if err != nil {
			t.Fatal(err)
		}
		ctx := t.Context()
		if of.Signal == syscall.SIGSTOP && r == of.Victim {
			ctx = victim
		}
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestRankOfProcess$")
		cmd.Env = append(os.Environ(), rankVariable+"="+string(text))
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		wg.Go(func() {
			out, err := cmd.Output()
			if of.Signal != 0 && r == of.Victim {
				return
			}
			var e Error
			if json.Unmarshal(out, &e) == nil {
				counting.Lock()
				errs[r] = &e
				counting.Unlock()
			} else if err != nil {
				t.Errorf("rank %d: %v\n%s", r, err, out)
			}
			if allBut(errs, of.Victim) {
				kill() // it is stopped
			}
		})
	}
	wg.Wait()
	return errs
}

var counting sync.Mutex

// allBut reports whether all errors are there but one.
func allBut(errs []*Error, victim int) bool {
	counting.Lock()
	defer counting.Unlock()
	for r, e := range errs {
		if r != victim && e == nil {
			return false
		}
	}
	return true
}

func TestRanksInProcesses(t *testing.T) {
	for r, e := range processes(t, 4, rankOf{Config: Config{Timeout: 30 * time.Second}}) {
		if e != nil {
			t.Errorf("rank %d: %v", r, e)
		}
	}
}

// TestKilledProcessIsNamed kills a rank, also the one that coordinates, and one that is stopped.
func TestKilledProcessIsNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		signal  syscall.Signal
		victim  int
		kind    Failure
		timeout time.Duration
	}{{syscall.SIGKILL, 2, Died, 30 * time.Second}, {syscall.SIGKILL, 0, Died, 30 * time.Second}, {syscall.SIGSTOP, 1, Hung, time.Second}, {syscall.SIGSTOP, 0, Hung, time.Second}} {
		t.Run(fmt.Sprint(c.signal, c.victim), func(t *testing.T) {
			t.Parallel()
			for r, e := range processes(t, 4, rankOf{Config: Config{Timeout: c.timeout, NoMeasure: true}, Signal: c.signal, Victim: c.victim}) {
				if r != c.victim && (e == nil || e.Kind != c.kind || !slices.Equal(e.Ranks, []int{c.victim})) {
					t.Errorf("rank %d: %v", r, e)
				}
			}
		})
	}
}

// TestRankOfProcess is a rank of the tests above.
func TestRankOfProcess(t *testing.T) {
	var of rankOf
	if err := json.Unmarshal([]byte(os.Getenv(rankVariable)), &of); err != nil {
		return // a test of its own has nothing to do
	}
	c, err := Connect(t.Context(), of.Config)
	if err != nil {
		t.Fatal(err)
	}
	v := make([]float32, 300_000)
	rounds := 1
	if of.Signal != 0 {
		rounds = 1 << 30
	}
	err = c.SetAlgorithm(KindAllReduce, Ring)
	for k := 0; k < rounds && err == nil; k++ {
		if k == 5 && c.Rank() == of.Victim {
			_ = syscall.Kill(os.Getpid(), of.Signal)
		}
		for i := range v {
			v[i] = float32(c.Rank()*1000 + i%1000)
		}
		if err = c.AllReduce(Slice(v), Slice(v), Sum); err != nil {
			break
		}
		for i := range v {
			if want := float32(of.Size*(of.Size-1)/2*1000 + of.Size*(i%1000)); v[i] != want {
				t.Fatalf("element %d is %v, want %v", i, v[i], want)
			}
		}
	}
	var e *Error
	if errors.As(err, &e) {
		text, _ := json.Marshal(e)
		fmt.Println(string(text))
		os.Exit(0)
	}
	if err := errors.Join(err, c.Barrier(), c.Close()); err != nil {
		t.Fatal(err)
	}
}
