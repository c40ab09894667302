package control

import (
	"errors"
	"fmt"
	"os"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l7/cache"
	"github.com/millrace/millrace/metrics"
)

// cacheDisk is the second level of a cache, which stays open over reloads as long as a cache has its folder.
type cacheDisk struct {
	*cache.Disk
	inherited bool // another process writes to the folder until Take
}

// planDisks opens the folders that are new, and keeps the others.
func planDisks(s *Set, n *plan) error {
	for i := range n.cfg.Caches {
		c := &n.cfg.Caches[i]
		if c.Disk == nil {
			continue
		}
		dir := n.cfg.Beside(c.Disk.Dir)
		if old := s.disks[dir]; old != nil {
			n.disks[dir] = old
			continue
		}
		lock := s.opt.Inherited.lock(dir)
		d, err := cache.OpenDisk(cache.DiskOptions{
			Dir: dir, Bytes: c.Disk.Bytes, MaxObject: c.Disk.MaxObject, Objects: c.Disk.Objects, Lock: lock, Budget: s.static, Log: s.opt.Log,
		})
		if err != nil {
			return fmt.Errorf("cache %s: disk: %w", c.Name, err)
		}
		n.disks[dir] = &cacheDisk{d, lock != nil}
	}
	return nil
}

// dropDisks closes the folders that a plan which is not used has opened beside those in use.
func (n *plan) dropDisks(used map[string]*cacheDisk) (err error) {
	for dir, d := range n.disks {
		if used[dir] != d {
			err = errors.Join(err, d.Close())
		}
	}
	return err
}

// useDisks gives the caches of a configuration their second level, and closes the folders that none has any more. The caller holds s.mu.
func useDisks(s *Set, n *plan) (err error) {
	for i := range n.cfg.Caches {
		c := &n.cfg.Caches[i]
		if c.Disk == nil {
			n.caches[i].UseDisk(nil)
			continue
		}
		d := n.disks[n.cfg.Beside(c.Disk.Dir)]
		d.SetLimits(c.Disk.Bytes, c.Disk.MaxObject, c.Disk.Objects)
		if n.caches[i].UseDisk(d.Disk); !d.inherited {
			d.Start()
		}
	}
	old := s.disks
	s.disks = n.disks
	for dir, d := range old {
		if n.disks[dir] != d {
			err = errors.Join(err, d.Close())
		}
	}
	return err
}

// closeDisks closes all folders, once.
func closeDisks(s *Set) (err error) {
	s.mu.Lock()
	all := s.disks
	s.disks = nil
	s.mu.Unlock()
	for _, d := range all {
		err = errors.Join(err, d.Close())
	}
	return err
}

// takeDisks begins to use the folders of the process that this one replaces.
func takeDisks(s *Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.disks {
		if d.inherited {
			d.inherited = false
			d.Start()
		}
	}
}

// holdDisks leaves the folders to another process, or goes on to use them.
func holdDisks(s *Set, hold bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.disks {
		if hold {
			d.Hold()
		} else {
			d.Start()
		}
	}
}

// passDisks adds the locks of the folders to what another process takes. The caller holds s.mu.
func passDisks(s *Set, in *Inherited) error {
	for dir, d := range s.disks {
		fd, err := dup(d.Lock())
		if err != nil {
			return err
		}
		in.Locks[dir] = os.NewFile(uintptr(fd), dir)
	}
	return nil
}

// DiskStatus is the state of the second level of a cache.
type DiskStatus struct {
	Dir         string `json:"dir"`
	Bytes       int64  `json:"bytes"`
	Limit       int64  `json:"limit"`
	Objects     int64  `json:"objects"`
	Loading     bool   `json:"loading"` // what was in the folder at the start is being found
	Reads       uint64 `json:"reads"`
	Written     uint64 `json:"written"`
	Evicted     uint64 `json:"evicted"`
	Full        uint64 `json:"full"`      // not written, as too much was waiting to be
	Damaged     uint64 `json:"damaged"`   // files that were dropped
	Recreated   uint64 `json:"recreated"` // times that the folder was made again, having been removed
	ReadErrors  uint64 `json:"read_errors"`
	WriteErrors uint64 `json:"write_errors"`
}

// diskStatus returns the state of the second level, nil without one.
func diskStatus(c *cache.Named) *DiskStatus {
	d := c.Disk()
	if d == nil {
		return nil
	}
	st := d.Stats()
	return &DiskStatus{
		Dir: st.Dir, Bytes: st.Bytes, Limit: st.Limit, Objects: st.Objects, Loading: st.Loading, Evicted: st.Evicted,
		Reads: st.Counts[cache.DiskReads], Written: st.Counts[cache.DiskWritten], Full: st.Counts[cache.DiskFull], Damaged: st.Counts[cache.DiskDamaged],
		Recreated:  st.Counts[cache.DiskRecreated],
		ReadErrors: st.Counts[cache.DiskReadError], WriteErrors: st.Counts[cache.DiskWriteError],
	}
}

// write writes the counters.
func (d *DiskStatus) write(w *metrics.Writer, of metrics.Label) {
	w.Gauge("millrace_http_cache_disk_bytes", "Files of stored responses.", float64(d.Bytes), of)
	w.Gauge("millrace_http_cache_disk_limit_bytes", "Bytes that these files may take.", float64(d.Limit), of)
	w.Gauge("millrace_http_cache_disk_objects", "Stored responses in files.", float64(d.Objects), of)
	w.Counter("millrace_http_cache_disk_reads_total", "Files that were opened for responses.", d.Reads, of)
	w.Counter("millrace_http_cache_disk_written_total", "Files that were written.", d.Written, of)
	w.Counter("millrace_http_cache_disk_evicted_total", "Files that made room for others.", d.Evicted, of)
	w.Counter("millrace_http_cache_disk_full_total", "Responses that were not written since too much was waiting for the disk.", d.Full, of)
	w.Counter("millrace_http_cache_disk_damaged_total", "Files that were dropped since they are not what was written.", d.Damaged, of)
	w.Counter("millrace_http_cache_disk_recreated_total", "Times that the folder was made again since it had been removed.", d.Recreated, of)
	for i, op := range []string{"read", "write"} {
		n := []uint64{d.ReadErrors, d.WriteErrors}[i]
		w.Counter("millrace_http_cache_disk_errors_total", "Reads and writes of files that have failed.", n, of, metrics.Label{Name: "operation", Value: op})
	}
}

// diskOf returns how a configuration bounds the second level of a cache, nil without one.
func diskOf(cfg *config.Config, name string) *config.CacheDisk {
	for i := range cfg.Caches {
		if cfg.Caches[i].Name == name {
			return cfg.Caches[i].Disk
		}
	}
	return nil
}
