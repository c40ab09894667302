package main

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// asStandIn in the environment makes the test binary a stand-in for a program that the recipes name and that tests cannot have: an engine
// of containers, by namespaces and chroot, and a client of Kubernetes with one node, which is this one. A flag or key that a
// stand-in does not act on is an error.
const asStandIn = "MILLRACE_TEST_STANDIN"

// standIn is main of a stand-in.
func standIn(name string, args []string) (code int) {
	err := errors.New("no command")
	switch {
	case name == "inside":
		err = inside(args[0])
	case len(args) == 0:
	case name == "podman":
		err = podman(args[0], args[1:])
	case name == "kubectl":
		err = kubectl(args)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		return 125
	}
	return 0
}

// standInState is where images and containers are.
const standInState = "/var/lib/standin"

// container is a container that runs, or is to be run.
type container struct {
	Root              string
	Args, Env         []string
	User, Group       int
	Caps              []string // in lower case
	Volumes           []string // FROM:TO, or FROM:TO:ro
	Init, ReadOnly    bool
	Tmpfs             []string
	PID               int
	Stop              string // the image's StopSignal
	Image, Entrypoint string
}

func podman(verb string, args []string) error {
	switch {
	case verb == "load" && len(args) == 2 && args[0] == "-i":
		return loadImage(args[1])
	case verb == "run":
		return podmanRun(args)
	case verb == "exec" && len(args) > 1:
		return execIn(args[0], args[1:])
	case verb == "logs" && len(args) == 1:
		text, err := os.ReadFile(filepath.Join(standInState, args[0]+".log"))
		fmt.Print(string(text))
		return err
	case verb == "kill" && len(args) == 3 && args[0] == "-s":
		return signalTo(args[2], args[1])
	case verb == "stop" && len(args) == 1:
		return stopContainer(args[0])
	}
	return fmt.Errorf("the stand-in has no %s %q", verb, args)
}

// loadImage unpacks the image of this architecture.
func loadImage(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	blobs := map[string][]byte{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if blobs[h.Name], err = io.ReadAll(r); err != nil {
			return err
		}
	}
	var at struct {
		Manifests []struct {
			Digest      string
			Annotations map[string]string
			Platform    struct{ Architecture string }
		}
		Config struct{ Digest string }
		Layers []struct{ Digest string }
	}
	next := func(name string) error {
		at.Manifests = nil
		return json.Unmarshal(blobs[name], &at)
	}
	of := func(digest string) string { return "blobs/" + strings.Replace(digest, ":", "/", 1) }
	if err := next("index.json"); err != nil {
		return err
	}
	tag := at.Manifests[0].Annotations["org.opencontainers.image.ref.name"]
	if err := next(of(at.Manifests[0].Digest)); err != nil {
		return err
	}
	i := slices.IndexFunc(at.Manifests, func(m struct {
		Digest      string
		Annotations map[string]string
		Platform    struct{ Architecture string }
	},
	) bool {
		return m.Platform.Architecture == runtime.GOARCH
	})
	if i < 0 {
		return errors.New("the image has no program for " + runtime.GOARCH)
	}
	if err := next(of(at.Manifests[i].Digest)); err != nil {
		return err
	}
	dir := filepath.Join(standInState, "millrace:"+tag)
	for _, l := range at.Layers {
		if err := unpackLayer(blobs[of(l.Digest)], filepath.Join(dir, "root")); err != nil {
			return err
		}
	}
	fmt.Println("Loaded image: localhost/millrace:" + tag)
	return os.WriteFile(filepath.Join(dir, "config.json"), blobs[of(at.Config.Digest)], 0o644)
}

// unpackLayer writes the files of a layer, by tar(1).
func unpackLayer(layer []byte, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	z, err := gzip.NewReader(bufio.NewReader(strings.NewReader(string(layer))))
	if err != nil {
		return err
	}
	cmd := exec.Command("tar", "-x", "-C", dir)
	cmd.Stdin, cmd.Stderr = z, os.Stderr
	return cmd.Run()
}

// fromImage fills in what the image says.
func (c *container) fromImage(ref string) error {
	dir := filepath.Join(standInState, strings.TrimPrefix(ref, "localhost/"))
	text, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return err
	}
	var image struct {
		Config struct {
			User, StopSignal     string
			Env, Entrypoint, Cmd []string
		}
	}
	if err := json.Unmarshal(text, &image); err != nil {
		return err
	}
	if c.User < 0 {
		if _, err := fmt.Sscanf(image.Config.User, "%d:%d", &c.User, &c.Group); err != nil {
			return err
		}
	}
	if len(c.Args) == 0 {
		c.Args = image.Config.Cmd
	}
	c.Args, c.Env, c.Stop = append(image.Config.Entrypoint, c.Args...), append(image.Config.Env, c.Env...), image.Config.StopSignal
	c.Root, c.Image = filepath.Join(dir, "root"), ref
	return nil
}

func podmanRun(args []string) error {
	c := container{User: -1}
	var name, network, drop, user string
	var detach, remove bool
	var ports []string
	fs := pflag.NewFlagSet("run", pflag.ContinueOnError)
	fs.SetInterspersed(false)
	fs.StringVar(&name, "name", "", "")
	fs.StringVar(&network, "network", "", "")
	fs.StringVar(&drop, "cap-drop", "", "")
	fs.StringVar(&user, "user", "", "")
	fs.BoolVarP(&detach, "detach", "d", false, "")
	fs.BoolVar(&remove, "rm", false, "")
	fs.BoolVar(&c.Init, "init", false, "")
	fs.BoolVar(&c.ReadOnly, "read-only", false, "")
	fs.StringArrayVar(&c.Caps, "cap-add", nil, "")
	fs.StringArrayVarP(&c.Env, "env", "e", nil, "")
	fs.StringArrayVar(&c.Tmpfs, "tmpfs", nil, "")
	fs.StringArrayVarP(&c.Volumes, "volume", "v", nil, "")
	fs.StringArrayVarP(&ports, "publish", "p", nil, "")
	if err := fs.Parse(args); err != nil {
		return err
	}
	for _, p := range ports {
		if from, to, ok := strings.Cut(p, ":"); !ok || from != to {
			return fmt.Errorf("-p %s: the stand-in has one network, so both ports must be equal", p)
		}
	}
	if network != "" && network != "host" {
		return errors.New("no network " + network)
	}
	for i, v := range c.Caps {
		c.Caps[i] = strings.ToLower(v)
	}
	if user != "" {
		id, err := strconv.Atoi(user)
		if err != nil {
			return err
		}
		c.User, c.Group = id, id
	}
	c.Args = fs.Args()[1:]
	if err := c.fromImage(fs.Arg(0)); err != nil {
		return err
	}
	if name == "" {
		name = strconv.Itoa(os.Getpid())
	}
	return c.start(name, detach)
}

func containerFile(name string) string { return filepath.Join(standInState, name+".json") }

// start runs the container in namespaces for processes and mounts of its own, and waits for its end unless detached.
func (c *container) start(name string, detach bool) error {
	if text, err := json.Marshal(c); err != nil {
		return err
	} else if err := os.WriteFile(containerFile(name), text, 0o644); err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe", containerFile(name))
	cmd.Env = append(os.Environ(), asStandIn+"=inside")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Setpgid: detach}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if detach {
		log, err := os.Create(filepath.Join(standInState, name+".log"))
		if err != nil {
			return err
		}
		cmd.Stdout, cmd.Stderr = log, log
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	c.PID = cmd.Process.Pid
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if err := os.WriteFile(containerFile(name), text, 0o644); err != nil || detach {
		return err
	}
	return cmd.Wait()
}

func readContainer(file string) (c container, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return c, err
	}
	return c, json.Unmarshal(text, &c)
}

// inside runs as the first process of a container: it mounts what the container has, and becomes its program, or the parent of it.
func inside(file string) error {
	c, err := readContainer(file)
	if err != nil {
		return err
	}
	if os.Getpid() == 1 {
		if err := c.mount(); err != nil {
			return err
		}
		if c.Init {
			return reap(file)
		}
	}
	return c.become()
}

func (c *container) mount() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount(c.Root, c.Root, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	at := func(name string) (string, error) { p := filepath.Join(c.Root, name); return p, os.MkdirAll(p, 0o755) }
	proc, err := at("proc")
	if err != nil {
		return err
	}
	sys, err := at("sys")
	if err != nil {
		return err
	}
	if err := errors.Join(unix.Mount("proc", proc, "proc", 0, ""), unix.Mount("sysfs", sys, "sysfs", unix.MS_RDONLY, "")); err != nil {
		return err
	}
	for _, v := range c.Volumes {
		parts := strings.Split(v, ":")
		from, err := filepath.Abs(parts[0])
		if err != nil {
			return err
		}
		to := filepath.Join(c.Root, parts[1])
		info, err := os.Stat(from)
		if err != nil {
			return err
		}
		if info.IsDir() {
			err = os.MkdirAll(to, 0o755)
		} else if err = os.MkdirAll(filepath.Dir(to), 0o755); err == nil {
			err = exec.Command("touch", to).Run()
		}
		if err = errors.Join(err, unix.Mount(from, to, "", unix.MS_BIND, "")); err != nil {
			return err
		}
		if len(parts) == 3 {
			if err := unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
				return err
			}
		}
	}
	for _, name := range c.Tmpfs {
		dir, err := at(name)
		if err != nil {
			return err
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=1777"); err != nil {
			return err
		}
	}
	if c.ReadOnly {
		return unix.Mount("", c.Root, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	return nil
}

// reap is the init of a container: it passes signals on, and waits for all processes.
func reap(file string) error {
	cmd := exec.Command("/proc/self/exe", file)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	go func() {
		for s := range signals {
			_ = syscall.Kill(-1, s.(syscall.Signal))
		}
	}()
	for {
		if _, err := syscall.Wait4(-1, nil, 0, nil); err == syscall.ECHILD {
			return nil
		}
	}
}

// become replaces this process by the container's program, in its root, as its user, with its capabilities and no others.
func (c *container) become() error {
	chroot, err := exec.LookPath("chroot")
	if err != nil {
		return err
	}
	var args []string
	switch {
	case c.User == 0: // chroot(1) comes behind setpriv(1), and needs its right
		have := "--bounding-set=-all,+sys_chroot"
		for _, name := range c.Caps {
			have += ",+" + strings.TrimPrefix(name, "cap_")
		}
		args = []string{"setpriv", "--no-new-privs", "--clear-groups", have, "--", chroot, c.Root}
	case len(c.Caps) > 0: // ambient ones outlive the change of the user
		return c.becomeUser()
	default:
		args = []string{chroot, "--userspec=" + fmt.Sprintf("%d:%d", c.User, c.Group), "--groups=", c.Root}
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	return syscall.Exec(path, append(args, c.Args...), c.Env)
}

// becomeUser is become for a user with capabilities.
func (c *container) becomeUser() error {
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = c.Env, "/", os.Stdout, os.Stderr
	numbers := map[string]uintptr{"net_bind_service": unix.CAP_NET_BIND_SERVICE, "net_admin": unix.CAP_NET_ADMIN, "net_raw": unix.CAP_NET_RAW, "bpf": unix.CAP_BPF, "perfmon": unix.CAP_PERFMON}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: c.Root, Credential: &syscall.Credential{Uid: uint32(c.User), Gid: uint32(c.Group)}}
	for _, name := range c.Caps {
		n, ok := numbers[strings.TrimPrefix(name, "cap_")]
		if !ok {
			return errors.New("no capability " + name)
		}
		cmd.SysProcAttr.AmbientCaps = append(cmd.SysProcAttr.AmbientCaps, n)
	}
	cmd.Path = c.Args[0]
	if err := cmd.Start(); err != nil {
		return err
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	return cmd.Wait()
}

// execIn runs a command in a container, as its user.
func execIn(name string, args []string) error {
	c, err := readContainer(containerFile(name))
	if err != nil {
		return err
	}
	cmd := exec.Command("nsenter", append([]string{
		"--target", strconv.Itoa(lastChild(c.PID)), "--mount", "--pid", "--root", "--wd",
		"--setuid", strconv.Itoa(c.User), "--setgid", strconv.Itoa(c.Group), "--",
	}, args...)...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Env, os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(cmd.Env, "PATH="+os.Getenv("PATH"))
	return cmd.Run()
}

// lastChild returns the last process of the line of first children that begins with pid: the program of a container behind its init.
func lastChild(pid int) int {
	for {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
		if _, err := fmt.Sscan(string(text), &pid); err != nil {
			return pid
		}
	}
}

func signalTo(name, signal string) error {
	c, err := readContainer(containerFile(name))
	if err != nil {
		return err
	}
	s := unix.SignalNum("SIG" + strings.TrimPrefix(signal, "SIG"))
	if s == 0 {
		return errors.New("no signal " + signal)
	}
	return syscall.Kill(c.PID, s)
}

// stopContainer sends the image's signal, and waits for the end. podman kills after 10 seconds; the tests have no such container.
func stopContainer(name string) error {
	c, err := readContainer(containerFile(name))
	if err != nil {
		return err
	}
	if err := signalTo(name, c.Stop); err != nil {
		return err
	}
	return exec.Command("timeout", "60", "tail", "--pid="+strconv.Itoa(c.PID), "-f", "/dev/null").Run()
}
