package files

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Errors of Answer and Read. Others are of the system.
var (
	ErrWait     = errors.New("files: not in the cache")
	ErrNotFound = errors.New("files: no such file")
	ErrMethod   = errors.New("files: the method is not GET or HEAD")
	ErrShort    = errors.New("files: the file has become shorter")
)

// Wait permits a call to wait for a disk, or forbids it.
type Wait uint8

// Values of Wait.
const (
	Now   Wait = iota // no: ErrWait is returned where it would
	Later             // yes
)

// Options are the settings of a Site.
type Options struct {
	Root          string   // of the files; a symbolic link is followed here, and none below leads out of it
	Index         []string // files of a folder that answer for it, the first that there is
	Try           []string // paths that are tried one after the other, with Path for that of the request; none is Path alone
	Listing       bool     // of folders without an index
	Precompressed []string // codings of files that may lie beside others, as a.css.gz beside a.css, the best first
	Hidden        bool     // also what begins with a dot; /.well-known is served in any case
	CacheControl  string   // the field of answers with a file; "" is none
	Except        []string // ends of names that are not served, as .php: they go to the scripts' server
	Budget        Budget   // of open files; nil sets no bound
}

// Path stands for the path of the request in Options.Try.
const Path = "${path}"

// Extensions are those of files that were compressed beforehand, by coding.
var Extensions = map[string]string{"gzip": ".gz", "br": ".br", "zstd": ".zst"}

// Site is a folder. Its methods may be called by any goroutine.
type Site struct {
	opt    Options
	root   *os.File      // it is closed with the last answer that may need it, by the collector
	cached atomic.Uint64 // resolveCached, or 0 where the kernel has it not (before 5.12): then only Later opens

	mu   sync.Mutex
	open map[version]*openFile
}

// Open opens the folder. Files that come into it later are served, also where it is renamed; a folder that takes its name is not.
func Open(o Options) (*Site, error) {
	root, err := os.OpenFile(o.Root, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	s := &Site{opt: o, root: root, open: map[version]*openFile{}}
	s.cached.Store(resolveCached)
	probe, err := s.openat(".", Later) // a kernel before 5.6, or a filter of system calls, has no openat2
	if err != nil {
		return nil, fmt.Errorf("%s: openat2: %w", o.Root, err)
	}
	_ = unix.Close(probe)
	return s, nil
}

// openat opens a path below the folder for reading. Devices and pipes are not waited for, and never become the terminal.
func (s *Site) openat(path string, w Wait) (int, error) {
	return s.openBeneath(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, w)
}

// Has reports whether there is a file at a name below the folder, which does not begin with a slash. It need not be readable.
func (s *Site) Has(name string, w Wait) (bool, error) {
	fd, err := s.openBeneath(name, unix.O_PATH, w)
	if err == ErrNotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, err
	}
	return st.Mode&unix.S_IFMT == unix.S_IFREG, nil
}

// openBeneath opens a path below the folder.
func (s *Site) openBeneath(path string, flags uint64, w Wait) (int, error) {
	how := unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	}
	if w == Now {
		cached := s.cached.Load()
		if cached == 0 {
			return -1, ErrWait
		}
		how.Resolve |= cached
	}
	for range maxRaces {
		fd, err := unix.Openat2(int(s.root.Fd()), path, &how)
		switch {
		case err == nil:
			return fd, nil
		case err == unix.EINTR:
		case w == Now && err == unix.EAGAIN:
			return -1, ErrWait
		case w == Now && err == unix.EINVAL:
			s.cached.Store(0)
			return -1, ErrWait
		case err != unix.EAGAIN: // which is a rename meanwhile that could have led out
			return -1, errorOf(err)
		}
	}
	return -1, ErrNotFound
}

// resolveCached is RESOLVE_CACHED of openat2(2), which x/sys lacks.
const resolveCached = 0x20

// maxRaces bounds the attempts where somebody renames folders all the time.
const maxRaces = 16

// errorOf returns what the error of openat2 is: what leads out of the folder is not there.
func errorOf(err error) error {
	if slices.Contains([]error{unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.EXDEV, unix.ENAMETOOLONG, unix.ENXIO, unix.ENODEV}, err) {
		return ErrNotFound
	}
	return err
}

// decode returns the path of a file below the folder, from that of a request, which is normalised and begins with a slash. ok is false
// for one that no file has: with a NUL, with a slash that was encoded, so that it is part of a name, or with a name that leads up.
func decode(path string) (name string, ok bool) {
	if !strings.HasPrefix(path, "/") {
		return "", false
	}
	path = path[1:]
	if strings.IndexByte(path, '%') >= 0 {
		b := make([]byte, 0, len(path))
		for i := 0; i < len(path); i++ {
			c := path[i]
			if c == '%' {
				if i+2 >= len(path) {
					return "", false
				}
				hi, lo := unhex(path[i+1]), unhex(path[i+2])
				if hi < 0 || lo < 0 {
					return "", false
				}
				if c = byte(hi<<4 | lo); c == '/' {
					return "", false
				}
				i += 2
			}
			b = append(b, c)
		}
		path = string(b)
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == ".." || part == "." || strings.IndexByte(part, 0) >= 0 {
			return "", false
		}
	}
	return path, true
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// hidden reports whether a name begins with a dot, or that of a folder on the way. What is below .well-known is for the public
// (RFC 8615).
func hidden(path string) bool {
	first := true
	for part := range strings.SplitSeq(path, "/") {
		if strings.HasPrefix(part, ".") && !(first && part == ".well-known") {
			return true
		}
		first = false
	}
	return false
}
