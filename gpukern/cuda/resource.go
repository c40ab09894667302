package cuda

import (
	"errors"
	"slices"
)

// resource is something that lives in a device's context until it is closed, at the latest with the device.
type resource struct {
	free  func() error // returns it to the driver; nil where there is nothing to give
	lost  func() error // what is left to do instead when the context is lost; nil where there is nothing
	unmap func() error // gives host memory back, once the device cannot reach it; nil where there is none
}

// track remembers what the owner has made.
func (d *Device) track(k *resource) { d.resources = append(d.resources, k) }

// free returns k, once. A context that is lost answers nothing more: the driver's part ends with the
// context, and host memory is unmapped only then. What the driver does not take back is kept, for the
// device's Close to try again. For the owner.
func (d *Device) free(k *resource) error {
	i := slices.Index(d.resources, k)
	if i < 0 {
		return nil
	}
	d.resources = slices.Delete(d.resources, i, i+1)
	free := k.free
	if d.Lost() != nil {
		free = k.lost
	}
	if free != nil {
		if err := d.noteLost(free()); err != nil && d.Lost() == nil {
			d.resources = append(d.resources, k)
			return err
		}
	}
	if k.unmap == nil {
		return nil
	}
	if d.Lost() != nil {
		d.unmaps = append(d.unmaps, k.unmap)
		return nil
	}
	return k.unmap()
}

// freeAll releases everything, the last first. For the owner, at the end.
func (d *Device) freeAll() error {
	var errs []error
	for i := len(d.resources) - 1; i >= 0; i-- {
		k := d.resources[i]
		if err := d.free(k); err != nil {
			errs = append(errs, err)
			d.resources = slices.DeleteFunc(d.resources, func(o *resource) bool { return o == k })
			if k.unmap != nil {
				d.unmaps = append(d.unmaps, k.unmap)
			}
		}
	}
	return errors.Join(errs...)
}

// close is drop for everybody else.
func (d *Device) close(k *resource) error {
	err := d.do(func() error { return d.free(k) })
	if err == ErrClosed { // the device's Close gave it back
		return nil
	}
	return err
}
