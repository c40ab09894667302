package upgrade

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"
)

// lowest is the lowest number of the descriptor by which an executable is run: those below may be replaced, between fork and exec, by the
// new process's standard files and the pair.
const lowest = 16

// Executable returns a descriptor of the program that this process runs. It stays valid when the file is replaced.
func Executable() (*os.File, error) {
	return os.Open("/proc/self/exe")
}

// Successor is the new process, for the old one.
type Successor struct {
	c     conn
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has ended
	err   error         // then: how
}

// Start starts a program that calls Inherit. Its standard files and its environment are those of this process. With an executable that
// is run, and the path only names it.
func Start(p Program, executable *os.File) (*Successor, error) {
	c, other, err := pair()
	if err != nil {
		return nil, err
	}
	defer other.Close()
	s := &Successor{c: c, cmd: exec.Command(p.Path, p.Args...), ended: make(chan struct{})}
	if executable != nil {
		fd, err := unix.FcntlInt(executable.Fd(), unix.F_DUPFD_CLOEXEC, lowest)
		if err != nil {
			_ = c.Close()
			return nil, fmt.Errorf("dup: %w", err)
		}
		defer unix.Close(fd)
		s.cmd.Path, s.cmd.Err = fmt.Sprintf("/proc/self/fd/%d", fd), nil
	}
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	s.cmd.ExtraFiles = []*os.File{other} // descriptor 3
	s.cmd.Env = append(os.Environ(), variable+"=3")
	if err := s.cmd.Start(); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("the new program does not start: %w", err)
	}
	go func() {
		if s.err = s.cmd.Wait(); s.err == nil {
			s.err = errors.New("exit status 0")
		}
		close(s.ended)
	}()
	return s, nil
}

// PID returns the number of the process.
func (s *Successor) PID() int { return s.cmd.Process.Pid }

// Offer sends the offer, with the executable of this process if it is not nil, and then what send sends, by its argument.
func (s *Successor) Offer(o *Offer, executable *os.File, send func(socket func(kind Kind, at string, files ...*os.File) error) error) error {
	o.Least, o.Most, o.PID = leastVersion, mostVersion, os.Getpid()
	var files []*os.File
	if o.Executable = executable != nil; o.Executable {
		files = append(files, executable)
	}
	err := s.c.send(kindOffer, o, files...)
	if err == nil {
		err = s.state(o.State)
	}
	if err == nil {
		err = send(s.socket)
	}
	if err == nil {
		err = s.c.send(kindEnd, nil)
	}
	if errors.Is(err, errGone) {
		return s.gone()
	}
	return err
}

// state sends Offer.State.
func (s *Successor) state(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	f, err := MemoryFile("state")
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(text); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return s.socket(stateFile, "", f)
}

// MemoryFile returns a file in memory, which a full disk does not limit.
func MemoryFile(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// socket sends sockets of one use, in as many messages as they need.
func (s *Successor) socket(kind Kind, at string, files ...*os.File) error {
	for len(files) > 0 {
		n := min(len(files), mostFiles)
		if err := s.c.send(kindSocket, &inherited{Kind: kind, At: at}, files[:n]...); err != nil {
			return err
		}
		files = files[n:]
	}
	return nil
}

// Prepared returns when the new process has everything open, with the version of its program, and the addresses of the UDP sockets that
// it does not take. The error may be a *Refused.
func (s *Successor) Prepared(ctx context.Context, limit time.Duration) (build string, left []string, err error) {
	m, err := s.await(ctx, kindPrepared, limit)
	if err != nil {
		return "", nil, err
	}
	var p prepared
	if err := json.Unmarshal(m.Body, &p); err != nil {
		return "", nil, fmt.Errorf("%s: %w", kindPrepared, err)
	}
	if p.Version < leastVersion || p.Version > mostVersion {
		return "", nil, fmt.Errorf("the new process has chosen version %d of the format, of %d to %d", p.Version, leastVersion, mostVersion)
	}
	return p.Build, p.Left, nil
}

// Serve has the new process serve, with the devices that this one has closed, and returns when it does.
func (s *Successor) Serve(ctx context.Context, limit time.Duration, devices Suspended) (served Served, err error) {
	var files []*os.File
	if devices.Table != nil {
		files = append(files, devices.Table)
	}
	if err := s.c.send(kindServe, &devices, files...); err != nil {
		return served, s.gone()
	}
	m, err := s.await(ctx, kindServing, limit)
	if err == nil {
		err = json.Unmarshal(m.Body, &served)
	}
	return served, err
}

// Watch waits for a time, and returns an error if the process ends meanwhile.
func (s *Successor) Watch(ctx context.Context, d time.Duration) error {
	select {
	case <-s.ended:
		return s.gone()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// Commit leaves the sockets to the new process.
func (s *Successor) Commit() error {
	err := s.c.send(kindOver, nil)
	_ = s.c.Close()
	if err != nil {
		return s.gone()
	}
	return nil
}

// Abandon ends the new process. It has ended when Abandon returns.
func (s *Successor) Abandon() {
	_ = s.cmd.Process.Kill()
	<-s.ended
	_ = s.c.Close()
}

// awaitStep is the interval at which await looks whether its context has ended.
const awaitStep = 50 * time.Millisecond

// await returns a message of a kind.
func (s *Successor) await(ctx context.Context, kind string, limit time.Duration) (message, error) {
	m, err := message{}, os.ErrDeadlineExceeded
	for until := time.Now().Add(limit); errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil && time.Now().Before(until); {
		m, err = s.c.receive(time.Now().Add(awaitStep))
	}
	m.close() // the new process has nothing to pass
	switch {
	case ctx.Err() != nil:
		return m, context.Cause(ctx)
	case errors.Is(err, errGone):
		return m, s.gone()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return m, fmt.Errorf("the new process was not %s within %v, and was ended", kind, limit)
	case err != nil:
		return m, err
	case m.Kind == kindRefused:
		r := &Refused{}
		if err := json.Unmarshal(m.Body, r); err != nil {
			return m, err
		}
		return m, r
	case m.Kind != kind:
		return m, m.unknown()
	}
	return m, nil
}

// goneLimit is the time in which a process that has closed its end is expected to end.
const goneLimit = 5 * time.Second

// gone returns how the new process has ended.
func (s *Successor) gone() error {
	select {
	case <-s.ended:
		return fmt.Errorf("the new process has ended (%w); the log has its messages", s.err)
	case <-time.After(goneLimit):
		return errors.New("the new process has closed its connection to this one (is it millrace?)")
	}
}
