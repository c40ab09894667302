package files

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/semantics"
)

// Answer is the answer to a request, which its receiver closes. It belongs to one goroutine at a time.
type Answer struct {
	Status int
	Fields []semantics.Field
	Length int64 // of the content that the fields announce: -1 where there is none, as with 304

	fd    int       // of the file, -1 with text
	file  *openFile // that has fd, nil while the answer alone has it
	text  []byte    // of what is no file
	at    int64     // of the next byte
	left  int64     // bytes to be read
	never bool      // the file system knows no RWF_NOWAIT
}

// Left returns how many bytes of content are to be read.
func (a *Answer) Left() int64 { return a.left }

// Close frees the file.
func (a *Answer) Close() {
	switch {
	case a.file != nil:
		a.file.release()
	case a.fd >= 0:
		_ = unix.Close(a.fd)
	}
	a.fd, a.file = -1, nil
}

// Read reads the next bytes of the content, as many as there are. io.EOF follows the last. ErrShort is of a file that has become
// shorter than its length was announced.
func (a *Answer) Read(p []byte, w Wait) (n int, err error) {
	p = p[:min(int64(len(p)), a.left)]
	switch {
	case a.left == 0:
		return 0, io.EOF
	case a.fd < 0:
		n = copy(p, a.text[a.at:])
	case w == Now:
		n, err = a.readNow(p, a.at)
	default:
		for n, err = unix.Pread(a.fd, p, a.at); err == unix.EINTR; n, err = unix.Pread(a.fd, p, a.at) {
		}
	}
	switch {
	case err != nil:
		return 0, err
	case n == 0:
		return 0, ErrShort
	}
	a.at += int64(n)
	a.left -= int64(n)
	return n, nil
}

// readNow reads what is in the page cache (preadv2(2), RWF_NOWAIT).
func (a *Answer) readNow(p []byte, at int64) (int, error) {
	if a.never {
		return 0, ErrWait
	}
	n, err := unix.Preadv2(a.fd, [][]byte{p}, at, unix.RWF_NOWAIT)
	switch err {
	case nil:
		return n, nil
	case unix.EOPNOTSUPP:
		a.never = true
		return 0, ErrWait
	case unix.EAGAIN, unix.EINTR:
		return 0, ErrWait
	}
	return 0, err
}

// add adds a field.
func (a *Answer) add(name, value string) {
	a.Fields = append(a.Fields, semantics.Field{Name: name, Value: value})
}

// Answer returns the answer to a request.
func (s *Site) Answer(q *Request, w Wait) (*Answer, error) {
	if q.Method != "GET" && q.Method != "HEAD" {
		return nil, ErrMethod
	}
	own, ok := decode(q.Path)
	if !ok {
		return nil, ErrNotFound
	}
	tries := s.opt.Try
	if len(tries) == 0 {
		tries = []string{Path}
	}
	var first error // that is not ErrNotFound
	for _, t := range tries {
		path := strings.TrimPrefix(strings.Replace(t, Path, "/"+own, 1), "/")
		if !s.opt.Hidden && hidden(path) {
			continue
		}
		a, err := s.try(q, path, path == own, w)
		switch {
		case err == nil || err == ErrWait:
			return a, err
		case err != ErrNotFound && first == nil:
			first = err
		}
	}
	if first == nil {
		first = ErrNotFound
	}
	return nil, first
}

// try answers with the file or the folder at a path. A path that ends with a slash is that of a folder.
func (s *Site) try(q *Request, path string, isOwn bool, w Wait) (*Answer, error) {
	name := strings.TrimSuffix(path, "/")
	folder := name != path || path == ""
	fd, st, err := s.openStat(name, w)
	if err != nil {
		return nil, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		if !folder {
			return s.file(q, name, fd, st, w)
		}
	case unix.S_IFDIR:
		if folder {
			return s.folder(q, name, fd, w)
		}
		_ = unix.Close(fd)
		if !isOwn {
			return nil, ErrNotFound
		}
		return redirect(q), nil
	}
	_ = unix.Close(fd)
	return nil, ErrNotFound
}

// openStat opens a path, and returns what it is.
func (s *Site) openStat(name string, w Wait) (fd int, st unix.Stat_t, err error) {
	if name == "" {
		name = "."
	}
	if fd, err = s.openat(name, w); err != nil {
		return -1, st, err
	}
	if err = unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return -1, st, err
	}
	return fd, st, nil
}

// redirect leads to the folder, so that references in its pages are below it. Shown is normalised: with a second slash at its begin the
// location would name a host (RFC 3986 4.2).
func redirect(q *Request) *Answer {
	a := &Answer{Status: 301, fd: -1}
	a.add("location", string(semantics.AppendReference(nil, q.Shown))+"/"+q.Query)
	return a
}

// folder answers with the index of a folder, or with a list. fd is taken.
func (s *Site) folder(q *Request, name string, fd int, w Wait) (*Answer, error) {
	defer func() { _ = unix.Close(fd) }()
	for _, index := range s.opt.Index {
		path := index
		if name != "" {
			path = name + "/" + index
		}
		of, st, err := s.openStat(path, w)
		switch {
		case err == ErrNotFound:
			continue
		case err != nil:
			return nil, err
		case st.Mode&unix.S_IFMT != unix.S_IFREG:
			_ = unix.Close(of)
			continue
		}
		return s.file(q, path, of, st, w)
	}
	switch {
	case !s.opt.Listing:
		return nil, ErrNotFound
	case w == Now: // reading a folder waits for the disk
		return nil, ErrWait
	}
	return s.list(q, name)
}

// excepts reports whether a file is a script, whose source is not shown. Names compare without regard to case, as on some file systems.
func (s *Site) excepts(name string) bool {
	return slices.ContainsFunc(s.opt.Except, func(end string) bool {
		return len(name) >= len(end) && strings.EqualFold(name[len(name)-len(end):], end)
	})
}

// file answers with a file. fd is taken.
func (s *Site) file(q *Request, name string, fd int, st unix.Stat_t, w Wait) (*Answer, error) {
	if s.excepts(name) {
		_ = unix.Close(fd)
		return nil, ErrNotFound
	}
	a := &Answer{Status: 200, fd: fd}
	a.add("content-type", typeOf(name))
	coding := ""
	if len(s.opt.Precompressed) > 0 {
		a.add("vary", "accept-encoding")
		var err error
		if coding, err = s.precompressed(q, name, a, &st, w); err != nil {
			a.Close()
			return nil, err
		}
	}
	if coding != "" {
		a.add("content-encoding", coding)
	}
	modified := time.Unix(st.Mtim.Sec, 0).UTC()
	tag := `"` + strconv.FormatInt(st.Mtim.Nano(), 36) + "-" + strconv.FormatInt(st.Size, 36)
	if coding != "" {
		tag += "-" + coding
	}
	tag += `"`
	a.add("etag", tag)
	a.add("last-modified", modified.Format(httpDate))
	if s.opt.CacheControl != "" {
		a.add("cache-control", s.opt.CacheControl)
	}
	a.condition(q, tag, modified, st.Size)
	if a.left == 0 {
		a.Close()
		return a, nil
	}
	if err := s.share(q, a, &st); err != nil {
		return nil, err
	}
	return a, nil
}

// precompressed takes the best of the files that lie beside one in another coding, which the client accepts and which is not older.
func (s *Site) precompressed(q *Request, name string, a *Answer, st *unix.Stat_t, w Wait) (string, error) {
	for _, coding := range semantics.Codings(q.accept, s.opt.Precompressed) {
		fd, other, err := s.openStat(name+Extensions[coding], w)
		if err == ErrNotFound {
			continue
		}
		if err != nil {
			return "", err
		}
		if other.Mode&unix.S_IFMT != unix.S_IFREG || other.Mtim.Nano() < st.Mtim.Nano() {
			_ = unix.Close(fd)
			continue
		}
		a.Close()
		a.fd, *st = fd, other
		return coding, nil
	}
	return "", nil
}

// httpDate is the form of dates (RFC 9110 5.6.7).
const httpDate = "Mon, 02 Jan 2006 15:04:05 GMT"

// list answers with the names in a folder.
func (s *Site) list(q *Request, name string) (*Answer, error) {
	entries, more, err := s.entries(name)
	if err != nil {
		return nil, err
	}
	a := &Answer{Status: 200, fd: -1, text: page(q, entries, more)}
	a.Length = int64(len(a.text))
	a.add("content-type", "text/html; charset=utf-8")
	if q.Method != "HEAD" {
		a.left = a.Length
	}
	return a, nil
}

// entries returns what is in a folder, at most maxEntries.
func (s *Site) entries(name string) (list []entry, more bool, err error) {
	fd, _, err := s.openStat(name, Later)
	if err != nil {
		return nil, false, err
	}
	dir := os.NewFile(uintptr(fd), name)
	defer dir.Close()
	names, err := dir.Readdirnames(maxEntries + 1)
	if err != nil && err != io.EOF {
		return nil, false, fmt.Errorf("%s: %w", name, err)
	}
	if more = len(names) > maxEntries; more {
		names = names[:maxEntries]
	}
	for _, n := range names {
		var st unix.Stat_t
		if !s.opt.Hidden && strings.HasPrefix(n, ".") || unix.Fstatat(fd, n, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			continue
		}
		list = append(list, entry{n, st.Mode & unix.S_IFMT, st.Size, time.Unix(st.Mtim.Sec, 0).UTC()})
	}
	return list, more, nil
}
