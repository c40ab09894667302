package collectiveperf

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/millrace/millrace/collective"
)

// keyVariable is the environment variable with the key of the ranks that Launch starts: other users can read arguments.
const keyVariable = "MILLRACE_COLLECTIVE_KEY"

// Launch runs ranks 1 to n-1 as processes of this program with the arguments of a rank, and returns the configuration of rank 0
// and a function that waits for them.
func Launch(ctx context.Context, n int, args []string, stderr io.Writer) (cfg collective.Config, wait func() error, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return cfg, nil, err
	}
	address := l.Addr().String()
	_ = l.Close() // rank 0 listens there
	key := make([]byte, 16)
	if _, err := rand.Read(key); err != nil {
		return cfg, nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return cfg, nil, err
	}
	text := fmt.Sprintf("%x", key)
	var ranks []*exec.Cmd
	wait = func() error {
		errs := make([]error, 0, len(ranks))
		for i, cmd := range ranks {
			if err := cmd.Wait(); err != nil {
				errs = append(errs, fmt.Errorf("rank %d: %w", i+1, err))
			}
		}
		return errors.Join(errs...)
	}
	for r := 1; r < n; r++ {
		cmd := exec.CommandContext(ctx, program, append(args, "--rank", strconv.Itoa(r), "--ranks", strconv.Itoa(n), "--address", address)...)
		cmd.Env = append(os.Environ(), keyVariable+"="+text)
		cmd.Stderr = stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			for _, c := range ranks {
				_ = c.Process.Kill() // it may have ended
			}
			return cfg, nil, errors.Join(err, wait())
		}
		ranks = append(ranks, cmd)
	}
	return collective.Config{Size: n, Address: address, Key: []byte(text)}, wait, nil
}

// Key returns the key in a file, or that of Launch; none is nil.
func Key(file string) ([]byte, error) {
	if file == "" {
		return []byte(os.Getenv(keyVariable)), nil
	}
	text, err := os.ReadFile(file)
	if err == nil && len(strings.TrimSpace(string(text))) < 16 {
		err = fmt.Errorf("%s: a key has at least 16 characters: make one by `openssl rand -hex 32`", file)
	}
	return []byte(strings.TrimSpace(string(text))), err
}
