package shim

import (
	"bytes"
	"context"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// A child has copies of all descriptors of its parent until it calls exec, also of those with FD_CLOEXEC. A test that starts a program from
// the process that has the node keeps the ends of other programs' sockets open for that time: a close(2) of either side is not the last, and
// the other side sees the end later than it may. So tests that run beside each other start programs by another process, the spawner.

const spawnerVariable = "MILLRACE_SHIM_TEST_SPAWNER"

// spawner starts programs. It is the service of the spawner's process.
type spawner struct{}

// SpawnRequest names a program.
type SpawnRequest struct {
	Path      string
	Args, Env []string
}

// SpawnReply is what it has printed.
type SpawnReply struct {
	Out, Errors []byte
	Failure     string // of the program, "" is none
}

// Run runs a program to its end.
func (spawner) Run(q SpawnRequest, r *SpawnReply) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, q.Path, q.Args...)
	var out, errors bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = q.Env, &out, &errors, limit
	if err := cmd.Run(); err != nil {
		r.Failure = err.Error()
	}
	r.Out, r.Errors = out.Bytes(), errors.Bytes()
	return nil
}

// serveSpawner is the spawner's process. It ends with its standard input.
func serveSpawner() {
	s := rpc.NewServer()
	if err := s.RegisterName("Spawner", spawner{}); err != nil {
		panic(err)
	}
	s.ServeConn(pipes{os.Stdin, os.Stdout})
}

// pipes is a connection of two pipes.
type pipes struct {
	io.ReadCloser
	io.WriteCloser
}

func (p pipes) Close() error {
	_ = p.WriteCloser.Close() // the other end ends
	return p.ReadCloser.Close()
}

var spawning struct {
	sync.Once
	client *rpc.Client
	cmd    *exec.Cmd
	err    error
}

// spawnerOf returns the spawner, which is started by the first call: no test may have a node at work beside it.
func spawnerOf(t *testing.T) *rpc.Client {
	t.Helper()
	spawning.Do(func() {
		cmd := exec.Command(os.Args[0])
		cmd.Env, cmd.Stderr = append(os.Environ(), spawnerVariable+"=1"), os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			spawning.err = err
			return
		}
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		spawning.cmd, spawning.client, spawning.err = cmd, rpc.NewClient(pipes{out, in}), err
	})
	if spawning.err != nil {
		t.Fatal(spawning.err)
	}
	return spawning.client
}

// endSpawner ends the spawner's process, for TestMain.
func endSpawner() {
	if spawning.cmd == nil || spawning.err != nil {
		return
	}
	_ = spawning.client.Close() // its input ends
	timer := time.AfterFunc(limit, func() { _ = spawning.cmd.Process.Kill() })
	_ = spawning.cmd.Wait()
	timer.Stop()
}

// spawn runs a program and returns what it prints.
func spawn(t *testing.T, path string, env []string, args ...string) (out string, failure string) {
	t.Helper()
	var r SpawnReply
	if err := spawnerOf(t).Call("Spawner.Run", SpawnRequest{path, args, append(os.Environ(), env...)}, &r); err != nil {
		t.Fatal(err)
	}
	_, _ = os.Stderr.Write(r.Errors)
	return string(r.Out), r.Failure
}
