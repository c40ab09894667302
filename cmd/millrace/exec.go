package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/app/stackd"
	"github.com/millrace/millrace/shim"
	"github.com/millrace/millrace/shim/notify"
)

// The exit codes of exec where the program was not started. 126 and 127 are those of a shell.
const (
	exitOldKernel    = 117
	exitSupervised   = 118
	exitNoSeccomp    = 119
	exitNoNode       = 120
	exitNotPermitted = 121
	exitNoLibrary    = 122
	exitPrivileged   = 123
	exitArchitecture = 124
	exitCannotRun    = 126
	exitNotFound     = 127
)

// notStarted is an error with the exit code of exec.
type notStarted struct {
	error
	code int
}

func (n notStarted) Unwrap() error { return n.error }

const execLong = `Run a program that was compiled for the kernel's sockets on the TCP and UDP of a
running host (millrace stack up). A library that is loaded into it takes the place of
the socket calls; its descriptors stay the kernel's, so that poll, fork and the like
work. The command becomes the program: its exit code, signals and standard streams are
those of the program.

--seccomp serves programs that no library can be loaded into: Go, static ones, musl. A
supervisor, a process apart, answers their calls. It needs Linux 5.19.

--socket is the control socket of the host, and --shim the socket for programs where
the host's configuration names another one. --config starts a host by that file if none
answers; it goes on running, and its log is beside the control socket. --fallback runs
the program on the kernel's stack if there is no host.

What the program starts uses the host, too, unless the library cannot be loaded into it:
static and Go programs, those with capabilities or setuid, and those that are started with
an empty environment. A line on standard error names each. --strict refuses to start them,
and forbids the kernel's sockets by a filter, however a program asks for one (EACCES). --isolate runs the program in a network namespace of its own, without interfaces:
whatever does not use the host reaches nothing at all.

--on-node-loss says what follows the end of the host. Connections are reset in any case.
keep: calls on listeners fail, until the program is started again. end: the program gets
SIGTERM. rebind: accept waits, and the program's listeners and bound UDP sockets are made
again once a host is back.

--rings moves the bytes of TCP by memory that the program shares with the host, for
connections that the program makes or accepts itself. What cannot use it goes on by
sockets, which millrace net sockets shows. With --busy-poll a blocking read looks for
bytes for that long before it sleeps: it takes a CPU for as long.

--rdma is for programs of libibverbs, such as perftest: they find the RDMA device of the
host (stack up --rdma) by a libibverbs.so.1 that comes before the system's.

Exit code 117 the kernel is too old for --seccomp, 118 the program has a supervisor
already, 119 a policy of the machine forbids one, 120 no host answers, 121 the user may
not use it, 122 this build has no library, 123 the program is setuid or
has capabilities, 124 it is of
another architecture or statically linked, 126 it cannot be run, 127 it is not found;
otherwise the program's.`

// execFlags are the flags of exec.
type execFlags struct {
	socket, shim, config string
	fallback             bool
	rings, seccomp, rdma bool
	strict, isolate      bool
	kernelInterfaces     bool
	onNodeLoss           string
	busyPoll             time.Duration
}

// ringsValue is MILLRACE_SHIM_RINGS.
func (f *execFlags) ringsValue() string {
	if f.rings {
		return "1"
	}
	return ""
}

// strictValue is MILLRACE_SHIM_STRICT.
func (f *execFlags) strictValue() string {
	if f.strict {
		return "1"
	}
	return ""
}

// interfacesValue is MILLRACE_SHIM_INTERFACES.
func (f *execFlags) interfacesValue() string {
	if f.kernelInterfaces {
		return "kernel"
	}
	return ""
}

// selfValue is MILLRACE_SHIM_SELF: the file of this program by device and inode. Its exec may be started in the program.
func selfValue() string {
	info, err := os.Stat("/proc/self/exe")
	if err != nil {
		return ""
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

// nodeLosses are the values of --on-node-loss.
var nodeLosses = []string{"keep", "end", "rebind"}

func newExec(c *console) *cobra.Command {
	var f execFlags
	cmd := &cobra.Command{
		Use:   "exec [--socket PATH] [--config FILE] [--fallback] -- COMMAND [ARGUMENT]...",
		Short: "Run an unmodified program on a running host's TCP and UDP",
		Long:  execLong,
		Example: `  millrace exec -- curl http://198.18.0.1/
  millrace exec -- nginx -c /etc/nginx/nginx.conf`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usage("name a program: millrace exec -- COMMAND")
			case f.seccomp && f.rings:
				return usage("--rings is of the library, which --seccomp does without")
			case f.seccomp && f.rdma:
				return usage("--rdma is of a library, which --seccomp does without")
			case f.busyPoll != 0 && !f.rings:
				return usage("--busy-poll is for --rings")
			case f.busyPoll < 0:
				return usage("--busy-poll is a time: 50us, 1ms")
			case !slices.Contains(nodeLosses, f.onNodeLoss):
				return usage("--on-node-loss is keep, end or rebind")
			case f.strict && f.seccomp:
				return usage("--strict is of the library: --seccomp serves all programs that its program starts")
			case f.strict && f.kernelInterfaces:
				return usage("--kernel-interfaces asks sockets of the kernel, which --strict forbids")
			case f.fallback && (f.strict || f.isolate || f.rdma):
				return usage("--fallback is the kernel's stack, which --strict and --isolate forbid, and which has no RDMA device")
			}
			return nil
		},
	}
	cmd.Flags().SetInterspersed(false) // flags behind the program's name are its own
	socketFlag(cmd, &f.socket, stackd.DefaultSocket, "control socket of the host")
	cmd.Flags().StringVar(&f.shim, "shim", "", "socket for programs (default: beside the control socket)")
	cmd.Flags().StringVarP(&f.config, "config", "c", "", "start a host by this file if none answers")
	cmd.Flags().BoolVar(&f.fallback, "fallback", false, "use the kernel's stack if there is no host")
	cmd.Flags().BoolVar(&f.strict, "strict", false, "refuse programs that would leave the host's stack")
	cmd.Flags().BoolVar(&f.isolate, "isolate", false, "run it in a network namespace without interfaces (needs CAP_SYS_ADMIN)")
	cmd.Flags().StringVar(&f.onNodeLoss, "on-node-loss", "keep", "when the host ends: keep the program, end it by SIGTERM, or rebind its listeners to the next host")
	cmd.Flags().BoolVar(&f.kernelInterfaces, "kernel-interfaces", false, "show the program the kernel's interfaces, not the host's")
	cmd.Flags().BoolVar(&f.rings, "rings", false, "move the bytes of TCP by shared memory")
	cmd.Flags().DurationVar(&f.busyPoll, "busy-poll", 0, "with --rings: how long a read looks for bytes before it sleeps")
	cmd.Flags().BoolVar(&f.rdma, "rdma", false, "the host's RDMA device in the place of libibverbs' own")
	cmd.Flags().BoolVar(&f.seccomp, "seccomp", false, "serve a program without libc: Go, static, musl")
	completeWords(cmd, "on-node-loss", nodeLosses...)
	completeFiles(cmd, "shim", "sock")
	completeFiles(cmd, "config", "yaml", "yml")
	cmd.RunE = command(func(ctx context.Context, args []string) error { return f.run(ctx, c, args) })
	return cmd
}

// run becomes the program; it returns only if that fails.
func (f *execFlags) run(ctx context.Context, c *console, args []string) error {
	path, err := findProgram(args[0])
	if err != nil {
		return err
	}
	socket := f.shim
	if socket == "" {
		socket = stackd.ShimSocket(f.socket)
	}
	if socket, err = filepath.Abs(socket); err != nil { // the program may change its folder
		return err
	}
	env := os.Environ()
	node, err := shim.Hello(socket)
	if err != nil && noNode(err) && f.config != "" {
		node, err = f.startNode(ctx, socket)
	}
	switch {
	case err != nil && noNode(err) && f.fallback:
		c.complain(fmt.Errorf("no host answers at %s: %s uses the kernel's stack", socket, args[0]))
	case err != nil:
		return nodeError(socket, err)
	case f.seccomp:
		return f.supervised(path, args, env, socket, &node)
	case os.Getenv(tierVariable) != "": // never both
		return supervisorError(notify.ErrSupervised)
	default:
		if err := f.loadable(c, path, args); err != nil {
			return err
		}
		if env, err = f.shimEnvironment(env, socket, &node); err != nil {
			return err
		}
		if env, err = f.rdmaEnvironment(env); err != nil {
			return err
		}
	}
	if f.isolate {
		if err := isolate(); err != nil {
			return err
		}
	}
	if f.strict {
		runtime.LockOSThread() // the filter is that of the thread that executes the program
		if err := notify.Confine(); err != nil {
			return notStarted{fmt.Errorf("--strict forbids sockets of the kernel by seccomp(2): %w", err), exitNoSeccomp}
		}
	}
	return notStarted{fmt.Errorf("%s: %w", path, syscall.Exec(path, args, env)), exitCannotRun}
}

// isolate moves the thread, which is about to become the program, to a network namespace of its own. That has no interface but lo, which is
// down: what does not use the host's stack reaches nothing. Sockets by path, as the host's for programs, are not of a namespace.
func isolate() error {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return notStarted{fmt.Errorf("--isolate makes a network namespace, which needs CAP_SYS_ADMIN: %w (run it as root, or without --isolate and with --strict)", err), exitCannotRun}
	}
	return nil
}

// findProgram returns the path of a command, as a shell finds it.
func findProgram(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "", notStarted{err, exitCannotRun}
	case err != nil && !errors.Is(err, exec.ErrDot):
		return "", notStarted{err, exitNotFound}
	}
	return path, nil
}

// noNode reports whether an error of Hello is that no host runs.
func noNode(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

func nodeError(socket string, err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return notStarted{fmt.Errorf("this user may not use the host at %s (shim.groups and shim.everyone of its configuration)", socket), exitNotPermitted}
	case noNode(err):
		return notStarted{fmt.Errorf("no host answers at %s: start one by `millrace stack up`, or name its control socket by --socket%s", socket, others(socket)), exitNoNode}
	}
	return notStarted{err, exitNoNode}
}

// maxOthers bounds the hosts that an error names.
const maxOthers = 4

// others names the control sockets of hosts that answer, beside socket and in the usual folder.
func others(socket string) string {
	var found []string
	pattern := stackd.ShimSocket("*.sock")
	for _, dir := range slices.Compact([]string{filepath.Dir(socket), filepath.Dir(stackd.DefaultSocket)}) {
		paths, _ := filepath.Glob(filepath.Join(dir, pattern)) // it is well-formed
		for _, p := range paths {
			control := strings.TrimSuffix(p, pattern[1:]) + ".sock"
			if p == socket || len(found) == maxOthers || slices.Contains(found, control) {
				continue
			}
			if _, err := shim.Hello(p); err == nil {
				found = append(found, control)
			}
		}
	}
	switch len(found) {
	case 0:
		return ""
	case 1:
		return " (" + found[0] + " answers)"
	}
	return " (" + strings.Join(found, ", ") + " answer)"
}

// maxHostLog bounds the part of a host's log that exec shows, in bytes.
const maxHostLog = 64 << 10

// startTime is the time that a host may take to come up.
const startTime = 30 * time.Second

// startNode starts a host that goes on running, and waits until it serves programs.
func (f *execFlags) startNode(ctx context.Context, socket string) (node shim.Node, err error) {
	self, err := os.Executable()
	if err != nil {
		return node, err
	}
	cmd := exec.Command(self, "stack", "up", "-c", f.config, "--socket", f.socket)
	log, begin, err := openHostLog(f.socket)
	if err != nil {
		return node, err
	}
	defer log.Close()
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return node, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for end := time.Now().Add(startTime); time.Now().Before(end); {
		if node, err = shim.Hello(socket); err == nil || !noNode(err) {
			return node, err
		}
		select {
		case e := <-ended:
			text, _ := io.ReadAll(io.NewSectionReader(log, begin, maxHostLog)) // without it, the error alone
			return node, fmt.Errorf("the host did not start: %w\n%s", e, bytes.TrimSpace(text))
		case <-ctx.Done():
			return node, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return node, err
}

// openHostLog opens the log of a host that exec starts, beside its control socket. It is not our standard error: a reader
// of that would wait for as long as the host runs. What the host writes begins at the offset that is returned.
func openHostLog(socket string) (f *os.File, begin int64, err error) {
	path := strings.TrimSuffix(socket, ".sock") + ".log"
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, 0, err
	}
	if f, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o640); err != nil {
		return nil, 0, err
	}
	begin, err = f.Seek(0, io.SeekEnd)
	return f, begin, err
}

// shimEnvironment returns the environment in which a program uses the host.
func (f *execFlags) shimEnvironment(env []string, socket string, node *shim.Node) ([]string, error) {
	lib, err := unpack()
	if errors.Is(err, shim.ErrNoLibrary) {
		return nil, notStarted{err, exitNoLibrary}
	}
	if err != nil {
		return nil, notStarted{err, exitCannotRun}
	}
	if old := os.Getenv("LD_PRELOAD"); old != "" && !slices.Contains(strings.FieldsFunc(old, func(r rune) bool { return r == ':' || r == ' ' }), lib) {
		lib += ":" + old
	}
	for _, v := range [][2]string{
		{"MILLRACE_SHIM_RINGS", f.ringsValue()},
		{"MILLRACE_SHIM_BUSY_POLL", strconv.FormatInt(f.busyPoll.Nanoseconds(), 10)},
		{"MILLRACE_SHIM_STRICT", f.strictValue()},
		{"MILLRACE_SHIM_SELF", selfValue()},
		{"MILLRACE_SHIM_ON_NODE_LOSS", f.onNodeLoss},
		{"MILLRACE_SHIM_FIRST", strconv.Itoa(os.Getpid())},
		{"MILLRACE_SHIM_INTERFACES", f.interfacesValue()},
		{"LD_PRELOAD", lib},
		{"MILLRACE_SHIM", socket},
		{"MILLRACE_SHIM_UID", strconv.FormatUint(uint64(node.UID), 10)},
		{"MILLRACE_SHIM_TOKEN", node.Token},
	} {
		env = slices.DeleteFunc(env, func(e string) bool { return strings.HasPrefix(e, v[0]+"=") })
		env = append(env, v[0]+"="+v[1])
	}
	return env, nil
}

// unpack is a variable so that a test can be a build without a library.
var unpack = shim.Unpack

func isSelf(path string) bool {
	a, err := os.Stat(path)
	b, e := os.Stat("/proc/self/exe")
	return err == nil && e == nil && os.SameFile(a, b)
}
