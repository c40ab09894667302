package fastcgi

import (
	"errors"
	"strings"
)

// Scripts finds the script that a path names.
//
// A path names the file up to the first segment that ends with one of Extensions, and what follows is PATH_INFO. A path without such a
// segment that ends with a slash names Index in that folder. Fallback serves what names no script, as a front controller does.
//
// Only files below the root run: servers were made to run uploads by paths as /upload/photo.jpg/x.php, where PHP looks for a file among
// the parents of one that is not there. With a Finder the script has to be there. Without one, what a gateway elsewhere cannot see is
// guarded by the form of the path: no folder on the way to a script has a dot in its name.
type Scripts struct {
	Extensions []string // of scripts, with the dot
	Index      string   // of folders; "" is none
	Fallback   string   // a path from the root that begins with a slash; "" is none
}

// Script is a script with the rest of the path behind it.
type Script struct {
	Name string // from the root, decoded; it begins with a slash
	Info string // PATH_INFO, decoded; "" is none
}

// Finder reports whether there is a file at a name below the root, which does not begin with a slash.
type Finder func(name string) (bool, error)

// Errors of Find.
var (
	ErrNoScript = errors.New("fastcgi: the path names no script")
	ErrFolder   = errors.New("fastcgi: the path is that of a folder, and lacks the slash at its end")
)

// Find returns the script of a path, which is normalised and still encoded. exists is nil where nothing can be looked up; its errors are
// returned.
func (s *Scripts) Find(path string, exists Finder) (Script, error) {
	found, err := s.find(path, exists)
	if err == ErrNoScript && s.Fallback != "" {
		return Script{Name: s.Fallback}, nil
	}
	return found, err
}

func (s *Scripts) find(path string, exists Finder) (Script, error) {
	name, ok := Decode(path)
	if !ok || hidden(name) {
		return Script{}, ErrNoScript
	}
	if script, info, ok := s.split(name); ok {
		if exists == nil && dotted(script) {
			return Script{}, ErrNoScript
		}
		return looked(Script{script, info}, exists)
	}
	folder := strings.TrimSuffix(name, "/")
	switch {
	case s.Index == "":
	case exists == nil && (s.Fallback != "" || folder == name || dotted(name)):
	case folder != name:
		return looked(Script{Name: name + s.Index}, exists)
	default:
		there, err := exists(name[1:] + "/" + s.Index)
		if err == nil && there {
			err = ErrFolder
		}
		if err != nil {
			return Script{}, err
		}
	}
	return Script{}, ErrNoScript
}

// looked returns a script that there is.
func looked(one Script, exists Finder) (Script, error) {
	if exists == nil {
		return one, nil
	}
	there, err := exists(one.Name[1:])
	switch {
	case err != nil:
		return Script{}, err
	case !there:
		return Script{}, ErrNoScript
	}
	return one, nil
}

// split divides a decoded path behind the first segment that ends with an extension.
func (s *Scripts) split(path string) (script, info string, ok bool) {
	for at := 1; at <= len(path); {
		end := len(path)
		if i := strings.IndexByte(path[at:], '/'); i >= 0 {
			end = at + i
		}
		if s.IsScript(path[at:end]) {
			return path[:end], path[end:], true
		}
		at = end + 1
	}
	return "", "", false
}

// IsScript reports whether a name of a file is that of a script. Names compare without regard to case: on file systems that do the
// same, A.PHP is a.php, and its source must not be taken for a file.
func (s *Scripts) IsScript(name string) bool {
	for _, ext := range s.Extensions {
		if len(name) > len(ext) && strings.EqualFold(name[len(name)-len(ext):], ext) {
			return true
		}
	}
	return false
}

// hidden reports whether a segment of a decoded path begins with a dot. What is below .well-known is for the public (RFC 8615).
func hidden(path string) bool {
	return strings.Contains(strings.TrimPrefix(path, "/.well-known/"), "/.") || strings.HasPrefix(strings.TrimPrefix(path, "/.well-known/"), ".")
}

// dotted reports whether a folder on the way to a script has a dot in its name, as a file has that PHP may take for the script.
func dotted(script string) bool {
	return strings.Contains(script[:strings.LastIndexByte(script, '/')], ".")
}

// Decode decodes a path. ok is false for one that means no file: with a NUL or another control character, with a slash that was encoded,
// or with a segment that leads up.
func Decode(path string) (name string, ok bool) {
	if !strings.HasPrefix(path, "/") {
		return "", false
	}
	if strings.IndexByte(path, '%') >= 0 {
		if path, ok = unescape(path); !ok {
			return "", false
		}
	}
	for i := range len(path) {
		if path[i] < ' ' || path[i] == 0x7f {
			return "", false
		}
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == "." || part == ".." {
			return "", false
		}
	}
	return path, true
}

// unescape decodes what is percent-encoded, but no slash.
func unescape(path string) (string, bool) {
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
	return string(b), true
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
