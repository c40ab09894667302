package collective

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
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

// TestRanksInProcesses runs ranks as processes of this test's program.
func TestRanksInProcesses(t *testing.T) {
	const n = 4
	address := free(t)
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() {
			cmd := exec.Command(os.Args[0], "-test.run=^TestRankOfProcess$", "-test.v")
			cmd.Env = append(os.Environ(), fmt.Sprintf("MILLRACE_TEST_RANK=%d/%d/%s", r, n, address))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("rank %d: %v\n%s", r, err, out)
			}
		})
	}
	wg.Wait()
}

// TestRankOfProcess is a rank of TestRanksInProcesses.
func TestRankOfProcess(t *testing.T) {
	var cfg Config
	if _, err := fmt.Sscanf(os.Getenv("MILLRACE_TEST_RANK"), "%d/%d/%s", &cfg.Rank, &cfg.Size, &cfg.Address); err != nil {
		return // a test of its own has nothing to do
	}
	cfg.Timeout = 30 * time.Second
	c, err := Connect(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	v := make([]float32, 300000)
	for i := range v {
		v[i] = float32(cfg.Rank*1000 + i%1000)
	}
	err = errors.Join(c.SetAlgorithm(KindAllReduce, Ring), c.AllReduce(Slice(v), Slice(v), Sum), c.Barrier(), c.Close())
	if err != nil {
		t.Fatal(err)
	}
	for i := range v {
		if want := float32(cfg.Size*(cfg.Size-1)/2*1000 + cfg.Size*(i%1000)); v[i] != want {
			t.Fatal("element " + strconv.Itoa(i) + " differs")
		}
	}
}
