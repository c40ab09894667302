package prom

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/millrace/millrace/metrics"
)

// maxStreams is the number of scrapes with parameters that are answered at once; others get status 503. Each may take as long
// as its client reads, and costs the CPU time of all series: 0.6 s with 40 000 backends.
const maxStreams = 4

// streamBuffer is the number of bytes of a scrape that are rendered before they are sent. An error in them is status 500.
const streamBuffer = 64 << 10

// streamer answers scrapes with parameters. It keeps none of the series.
type streamer struct {
	runtime prometheus.Gatherer // few series
	reg     *metrics.Registry
	free    chan struct{} // a place for each scrape
}

func (s *streamer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	sel, err := selection(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	select {
	case s.free <- struct{}{}:
		defer func() { <-s.free }()
	default:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many clients are reading long answers", http.StatusServiceUnavailable)
		return
	}
	first := &firstWrite{w: w, gzip: acceptsGzip(req)}
	out := bufio.NewWriterSize(first, streamBuffer)
	if err = s.write(out, sel); err == nil {
		err = out.Flush()
	}
	switch {
	case err == nil:
		err = first.close()
	case first.out == nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if err != nil {
		panic(http.ErrAbortHandler) // the connection ends without the end of the answer, so no scraper takes it for whole
	}
}

// write writes the series of the Go runtime and the process, and those of the registry.
func (s *streamer) write(out io.Writer, sel metrics.Selection) error {
	families, err := s.runtime.Gather()
	if err != nil {
		return err
	}
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(out, f); err != nil {
			return err
		}
	}
	return s.reg.WriteText(out, sel)
}

// firstWrite sends the header of an answer with its first bytes.
type firstWrite struct {
	w    http.ResponseWriter
	gzip bool
	out  io.Writer // nil before the first bytes
	zip  *gzip.Writer
}

func (f *firstWrite) Write(b []byte) (int, error) {
	if f.out == nil {
		f.w.Header().Set("Content-Type", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
		f.w.Header().Set("Vary", "Accept-Encoding")
		if f.out = f.w; f.gzip {
			f.w.Header().Set("Content-Encoding", "gzip")
			f.zip, _ = gzip.NewWriterLevel(f.w, gzip.BestSpeed) // its error is a wrong level
			f.out = f.zip
		}
	}
	return f.out.Write(b)
}

func (f *firstWrite) close() error {
	if f.zip == nil {
		return nil
	}
	return f.zip.Close()
}

// acceptsGzip reports whether a client takes an answer in gzip (RFC 9110 12.5.3).
func acceptsGzip(req *http.Request) bool {
	for _, list := range req.Header.Values("Accept-Encoding") {
		for one := range strings.SplitSeq(list, ",") {
			name, weight, _ := strings.Cut(strings.TrimSpace(one), ";")
			q, given := strings.CutPrefix(strings.TrimSpace(weight), "q=")
			if v, err := strconv.ParseFloat(q, 64); strings.TrimSpace(name) == "gzip" && (!given || err == nil && v > 0) {
				return true
			}
		}
	}
	return false
}

// selection parses the parameters of a scrape.
func selection(req *http.Request) (sel metrics.Selection, err error) {
	for key, values := range req.URL.Query() {
		switch key {
		case "all":
			if sel.All, err = strconv.ParseBool(values[0]); err != nil {
				return sel, fmt.Errorf("all is %q: say 1 or 0", values[0])
			}
		case "name":
			sel.Names = slices.Compact(slices.Sorted(slices.Values(values)))
		default:
			return sel, fmt.Errorf("there is no parameter %q, only all and name", key)
		}
	}
	return sel, nil
}
