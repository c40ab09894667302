package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/shim"
	"github.com/millrace/millrace/shim/notify"
)

// superviseCommand is the command of the process that answers the calls of a program (exec --seccomp).
const superviseCommand = "supervise"

// tierVariable says to an exec within the program that it has a supervisor.
const tierVariable = "MILLRACE_TIER"

// instructions are sent to a supervisor, beside the descriptor of the filter.
type instructions struct {
	Socket string // of the node, for programs
	Node   shim.Node

	KernelInterfaces bool // --kernel-interfaces
	EndWithNode      bool // --on-node-loss=end
	Rebinds          bool // --on-node-loss=rebind
}

// supervised becomes the program, with a filter whose supervisor is a process apart. It returns only if that fails.
func (f *execFlags) supervised(path string, args, env []string, socket string, node *shim.Node) error {
	if err := supervisable(path); err != nil {
		return err
	}
	conn, pid, err := startSupervisor()
	if err != nil {
		return notStarted{fmt.Errorf("the supervisor did not start: %w", err), exitCannotRun}
	}
	runtime.LockOSThread() // the filter is that of the thread that executes the program
	// Where Yama lets ancestors alone read a process, it has to be named. Elsewhere this is EINVAL.
	_ = unix.Prctl(unix.PR_SET_PTRACER, uintptr(pid), 0, 0, 0)
	filter, err := notify.Install()
	if err != nil {
		return supervisorError(err)
	}
	message, err := json.Marshal(instructions{Socket: socket, Node: *node, KernelInterfaces: f.kernelInterfaces, EndWithNode: f.onNodeLoss == "end", Rebinds: f.onNodeLoss == "rebind"})
	if err == nil {
		err = unix.Sendmsg(conn, message, unix.UnixRights(filter), nil, unix.MSG_NOSIGNAL|notify.Unsupervised)
	}
	unix.Close(filter)
	if err != nil {
		return notStarted{fmt.Errorf("the supervisor has ended: %w", err), exitCannotRun}
	}
	time.AfterFunc(probeTime, func() { // the thread waits in a call: there is no other way to say it
		fmt.Fprintln(os.Stderr, "millrace: the supervisor of the program does not answer")
		os.Exit(exitNoSeccomp)
	})
	if err := notify.Probe(); err != nil {
		return supervisorError(errors.Join(said(conn), err))
	}
	if f.isolate {
		if err := isolate(); err != nil {
			return err
		}
	}
	return notStarted{fmt.Errorf("%s: %w", path, syscall.Exec(path, args, seccompEnvironment(env))), exitCannotRun}
}

// probeTime is the time that the first calls may take.
const probeTime = 20 * time.Second

// supervisorError has the exit code of each reason.
func supervisorError(err error) error {
	switch {
	case errors.Is(err, notify.ErrSupervised):
		return notStarted{fmt.Errorf("%w: start it outside of the other one, such as another `millrace exec --seccomp`, or run it without --seccomp if it has libc", err), exitSupervised}
	case errors.Is(err, notify.ErrNotPermitted):
		return notStarted{fmt.Errorf("%w: permit ptrace and seccomp there, or run it as root", err), exitNoSeccomp}
	case errors.Is(err, notify.ErrOldKernel):
		return notStarted{fmt.Errorf("%w: programs with libc run without --seccomp", err), exitOldKernel}
	}
	return notStarted{err, exitNoSeccomp}
}

// said returns what the supervisor has to say of its end, nil if nothing.
func said(conn int) error {
	_ = unix.SetsockoptTimeval(conn, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1})
	var b [1024]byte
	n, err := unix.Read(conn, b[:]) // the filter leaves it alone
	if err != nil || n <= 0 {
		return nil
	}
	return errors.New(string(b[:n]))
}

// supervisable returns why a program would not run under a supervisor as it should.
func supervisable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return notStarted{err, exitCannotRun}
	}
	if (privileged(info) || capable(path)) && !notify.Privileged() {
		return notStarted{fmt.Errorf("%s is setuid or setgid, or has capabilities, and without CAP_SYS_ADMIN a filter takes its rights away (no_new_privs): run millrace exec as root", path), exitPrivileged}
	}
	if unix.Access(path, unix.R_OK) == unix.EACCES && !notify.Privileged() {
		return notStarted{fmt.Errorf("%s cannot be read by this user, so that the supervisor may not read its memory: permit that, or run millrace exec as root", path), exitNoSeccomp}
	}
	if script := interpreter(path); script != "" {
		return supervisable(script)
	}
	return rightMachine(path)
}

// seccompEnvironment is without the library: a program has one of both.
func seccompEnvironment(env []string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(e string) bool {
		return strings.HasPrefix(e, "MILLRACE_SHIM") || strings.HasPrefix(e, tierVariable+"=")
	})
	for i, e := range env {
		if list, ok := strings.CutPrefix(e, "LD_PRELOAD="); ok {
			libs := slices.DeleteFunc(strings.FieldsFunc(list, func(r rune) bool { return r == ':' || r == ' ' }), func(l string) bool {
				return strings.HasPrefix(filepath.Base(l), "libmillrace-")
			})
			env[i] = "LD_PRELOAD=" + strings.Join(libs, ":")
		}
	}
	return append(env, tierVariable+"=seccomp")
}

// startSupervisor starts the supervisor and returns the connection to it, and its process. It is no child of the program, which
// would meet it in wait(2): a process between them ends at once.
func startSupervisor() (conn, pid int, err error) {
	self, err := os.Executable()
	if err != nil {
		return -1, 0, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, 0, err
	}
	end := os.NewFile(uintptr(pair[1]), "supervisor")
	defer end.Close()
	cmd := exec.Command(self, superviseCommand, "--start", strconv.Itoa(os.Getpid()))
	cmd.ExtraFiles = []*os.File{end}
	if out, err := cmd.CombinedOutput(); err != nil {
		return -1, 0, fmt.Errorf("%w: %s", err, out)
	}
	end.Close()
	var b [64]byte
	n, _, err := unix.Recvfrom(pair[0], b[:], 0)
	if err == nil {
		_, err = fmt.Sscan(string(b[:n]), &pid)
	}
	return pair[0], pid, err
}

// newSupervise is the process of exec --seccomp that answers calls. It is no command for users.
func newSupervise() *cobra.Command {
	var start bool
	cmd := &cobra.Command{
		Use: superviseCommand + " PROCESS", Short: "Answer the system calls of a program (internal, of exec --seccomp)", Hidden: true,
		Args: cobra.ExactArgs(1), // which process it is, for ps(1) alone
	}
	cmd.Flags().BoolVar(&start, "start", false, "start it, and end")
	cmd.RunE = command(func(_ context.Context, args []string) error {
		if start {
			return startSelf(args[0])
		}
		return supervise(3)
	})
	return cmd
}

// startSelf starts the supervisor in a session of its own, without standard streams, whose readers would wait for its end.
func startSelf(program string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, superviseCommand, program)
	cmd.ExtraFiles = []*os.File{os.NewFile(3, "program")}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd.Start()
}

// supervise answers the calls of the program at the other end of conn until it and its children have ended.
func supervise(conn int) error {
	unix.CloseOnExec(conn)
	// It ends with the program. A service manager sends these to all processes of a service.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTSTP)
	if _, err := unix.Write(conn, fmt.Appendln(nil, os.Getpid())); err != nil {
		return err
	}
	in, filter, err := receiveInstructions(conn)
	if err != nil {
		return err
	}
	s, err := notify.New(filter, shim.NewClient(in.Socket, in.Node))
	if err == nil {
		s.KernelInterfaces, s.Rebinds = in.KernelInterfaces, in.Rebinds
		if program, e := unix.GetsockoptUcred(conn, unix.SOL_SOCKET, unix.SO_PEERCRED); e == nil && in.EndWithNode {
			s.NodeGone = func(process int) { // one of them, or both, may have ended
				_, _ = unix.Kill(int(program.Pid), unix.SIGTERM), unix.Kill(process, unix.SIGTERM)
			}
		}
		err = s.Run()
	}
	if err != nil { // while the program waits for the first calls, it reads this
		_ = unix.Sendto(conn, []byte(err.Error()), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, nil)
	}
	return err
}

func receiveInstructions(conn int) (in instructions, filter int, err error) {
	b, oob := make([]byte, 8192), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := unix.Recvmsg(conn, b, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return in, -1, err
	}
	if n == 0 {
		return in, -1, fmt.Errorf("the program was not started: %w", fs.ErrClosed)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(messages) != 1 {
		return in, -1, errors.New("no descriptor of a filter came")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return in, -1, errors.New("no descriptor of a filter came")
	}
	return in, fds[0], json.Unmarshal(b[:n], &in)
}
