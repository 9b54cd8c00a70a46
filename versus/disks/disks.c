// SPDX-License-Identifier: MIT
/*
 * Two modelled disks for the comparison with kernel caches: /dev/model-hdd and /dev/model-ssd.
 *
 * Contents are in memory. A request is answered when a timer says so, after the time that the modelled disk would
 * have needed. In QEMU's virtual time that is exact: an idle guest jumps to its next timer, however slow the machine
 * is. Everything of a disk happens under its lock, with interrupts off.
 *
 * The SSD: a few servers with a fixed latency each, and one bus behind them.
 * The hard disk: one arm (seek by distance, then rotation, then the media pass by), which reads ahead into a buffer and
 * has a volatile write cache. Of what waits it takes what it reaches first; age counts a little.
 */
#include <linux/blk-mq.h>
#include <linux/hrtimer.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/vmalloc.h>

#define NUMBER(name, value, text)          \
	static unsigned long name = value; \
	module_param(name, ulong, 0444);   \
	MODULE_PARM_DESC(name, text)

NUMBER(slow, 1, "every time of both disks is multiplied by this");
NUMBER(hdd_mib, 8192, "size of the hard disk");
NUMBER(hdd_turn_us, 8333, "a revolution: 7200 a minute");
NUMBER(hdd_track_kib, 1408, "what passes by in a revolution: 173 MB/s");
NUMBER(hdd_seek_min_us, 900, "to the next track");
NUMBER(hdd_seek_max_us, 10800, "from the first to the last track");
NUMBER(hdd_settle_us, 500, "a write wants the arm to be calm for this long");
NUMBER(hdd_command_us, 120, "for a request to be understood");
NUMBER(hdd_link_mbps, 500, "between buffer and host");
NUMBER(hdd_ahead_kib, 8192, "read ahead at the most");
NUMBER(hdd_cache_kib, 32768, "volatile write cache");
NUMBER(hdd_age_part, 64, "of a request's age this part makes up for distance");
NUMBER(ssd_mib, 1024, "size of the SSD");
NUMBER(ssd_servers, 9, "requests served at a time, 64 at the most");
NUMBER(ssd_read_us, 80, "latency of a read, without the bus");
NUMBER(ssd_write_us, 40, "latency of a write, without the bus");
NUMBER(ssd_flush_us, 500, "a flush");
NUMBER(ssd_bus_mbps, 520, "the bus that all servers share");

#define EXTENTS 64 /* of the hard disk's write cache */
#define SERVERS_MAX 64

/* A piece of work for the arm: a request that waits for it, or a dirty extent of the write cache (without request). */
struct work {
	struct list_head list;
	u64 from, to, since;
	bool writes;
	struct request *request;
	struct hrtimer answer;
};

struct disk {
	spinlock_t lock;
	struct page **pages; /* by number; NULL reads as zeroes */
	struct gendisk *gendisk;
	struct blk_mq_tag_set tags;
	bool is_hdd;
	/* SSD: when each server, and the bus, is free */
	u64 server[SERVERS_MAX], bus;
	/* hard disk */
	struct hrtimer arm;
	struct work *current_work; /* what the arm is at; NULL: it is idle */
	u64 head, head_since; /* where the arm stands, and since when */
	bool is_ahead; /* the arm goes on reading: what is buffered begins at ahead_from, and head passes by */
	u64 ahead_from;
	struct list_head waiting; /* work that clients wait for */
	struct list_head parked; /* writes without room in the write cache */
	struct list_head flushes;
	struct list_head dirty, unused; /* the extents of the write cache */
	unsigned int dirty_count;
	u64 dirty_bytes;
	struct work extents[EXTENTS];
};

static struct disk hdd, ssd;

static u64 us(u64 time) { return time * 1000 * slow; }
static u64 transfer(u64 bytes, u64 mbps) { return div64_u64(bytes * 1000 * slow, mbps); }

/* ---- contents ---- */

static blk_status_t move_data(struct disk *disk, struct request *request)
{
	bool writes = req_op(request) == REQ_OP_WRITE;
	u64 at = blk_rq_pos(request) << SECTOR_SHIFT;
	struct req_iterator iterator;
	struct bio_vec vec;

	rq_for_each_segment(vec, request, iterator) {
		char *memory = bvec_kmap_local(&vec);
		u32 left = vec.bv_len;

		while (left) {
			struct page **page = &disk->pages[at >> PAGE_SHIFT];
			u32 offset = at & ~PAGE_MASK, length = min_t(u32, left, PAGE_SIZE - offset);

			if (writes && !*page)
				*page = alloc_page(GFP_ATOMIC | __GFP_ZERO);
			if (writes && !*page) {
				kunmap_local(memory);
				return BLK_STS_NOSPC;
			}
			if (writes)
				memcpy(page_address(*page) + offset, memory, length);
			else if (*page)
				memcpy(memory, page_address(*page) + offset, length);
			else
				memset(memory, 0, length);
			memory += length;
			at += length;
			left -= length;
		}
		kunmap_local(memory - vec.bv_len);
	}
	return BLK_STS_OK;
}

static void forget_data(struct disk *disk, struct request *request)
{
	u64 from = blk_rq_pos(request) << SECTOR_SHIFT, page, end = (from + blk_rq_bytes(request)) >> PAGE_SHIFT;

	for (page = DIV_ROUND_UP_ULL(from, PAGE_SIZE); page < end; page++) {
		if (disk->pages[page])
			__free_page(disk->pages[page]);
		disk->pages[page] = NULL;
	}
}

/* ---- answers ---- */

static enum hrtimer_restart answer(struct hrtimer *timer)
{
	blk_mq_end_request(container_of(timer, struct work, answer)->request, BLK_STS_OK);
	return HRTIMER_NORESTART;
}

static void answer_at(struct work *work, u64 time)
{
	hrtimer_start(&work->answer, ns_to_ktime(time), HRTIMER_MODE_ABS);
}

/* ---- the SSD ---- */

static void ssd_take(struct disk *disk, struct work *work, u64 now)
{
	u64 moved = transfer(work->to - work->from, ssd_bus_mbps), *server = disk->server, done;
	int at;

	if (req_op(work->request) == REQ_OP_FLUSH)
		return answer_at(work, now + us(ssd_flush_us));
	if (req_op(work->request) == REQ_OP_DISCARD)
		return answer_at(work, now + us(ssd_write_us));
	for (at = 1; at < ssd_servers; at++)
		if (disk->server[at] < *server)
			server = &disk->server[at];
	done = max(*server, now) + us(work->writes ? ssd_write_us : ssd_read_us);
	*server = done;
	/* The bus is never idle while there is something to move; who waits for a server does not hold it. */
	disk->bus = max(disk->bus, now) + moved;
	answer_at(work, max(done + moved, disk->bus));
}

/* ---- the hard disk ---- */

static u64 pass(u64 bytes) { return div64_u64(bytes * us(hdd_turn_us), hdd_track_kib << 10); }

/* How long the arm needs from now on until it stands before this byte. */
static u64 reach(struct disk *disk, u64 now, u64 byte, bool writes)
{
	u64 distance = byte > disk->head ? byte - disk->head : disk->head - byte;
	u64 track = hdd_track_kib << 10, time = 0, angle, reached;

	/* What follows at once needs no turn. */
	if (!distance && now - disk->head_since < us(hdd_command_us))
		return 0;
	if (distance >= track) {
		/* The root of the part of the way, in 1/1024. */
		u64 root = int_sqrt64(div64_u64(distance << 20, hdd_mib << 20));

		time = us(hdd_seek_min_us) + us(hdd_seek_max_us - hdd_seek_min_us) * root / 1024;
	}
	if (writes)
		time += us(hdd_settle_us);
	div64_u64_rem(byte, track, &angle);
	div64_u64_rem(now + time, us(hdd_turn_us), &reached);
	angle = pass(angle);
	return time + (angle >= reached ? angle - reached : angle + us(hdd_turn_us) - reached);
}

static void choose(struct disk *disk, struct list_head *list, u64 now, struct work **best, s64 *least)
{
	struct work *work;

	list_for_each_entry(work, list, list) {
		s64 age = work->request ? div64_u64(now - work->since, hdd_age_part) : 0;
		s64 cost = reach(disk, now, work->from, work->writes) - age;

		if (!*best || cost < *least) {
			*best = work;
			*least = cost;
		}
	}
}

/* Gives an idle arm its next work. Dirty extents wait for clients, unless a flush or want of room presses. */
static void go_on(struct disk *disk, u64 now)
{
	bool presses = !list_empty(&disk->flushes) || !list_empty(&disk->parked) || disk->dirty_count > EXTENTS * 3 / 4 ||
		       disk->dirty_bytes > (hdd_cache_kib << 10) / 4 * 3;
	struct work *best = NULL;
	s64 least = 0;
	u64 end;

	if (disk->current_work)
		return;
	choose(disk, &disk->waiting, now, &best, &least);
	if (presses || !best)
		choose(disk, &disk->dirty, now, &best, &least);
	if (!best)
		return;
	end = now + reach(disk, now, best->from, best->writes) + pass(best->to - best->from);
	if (best->request)
		end += us(hdd_command_us);
	else {
		disk->dirty_count--;
		disk->dirty_bytes -= best->to - best->from;
	}
	list_del(&best->list);
	disk->current_work = best;
	disk->is_ahead = false;
	hrtimer_start(&disk->arm, ns_to_ktime(end), HRTIMER_MODE_ABS);
}

/* Takes a write into the write cache, if it has room. */
static bool keep(struct disk *disk, struct work *write)
{
	u64 bytes = write->to - write->from;
	struct work *extent;

	list_for_each_entry(extent, &disk->dirty, list)
		if (write->from >= extent->from && write->to <= extent->to)
			return true;
	if (disk->dirty_bytes + bytes > hdd_cache_kib << 10)
		return false;
	list_for_each_entry(extent, &disk->dirty, list)
		if (write->from == extent->to && extent->to - extent->from < 1 << 20) {
			extent->to = write->to;
			disk->dirty_bytes += bytes;
			return true;
		}
	extent = list_first_entry_or_null(&disk->unused, struct work, list);
	if (!extent)
		return false;
	extent->from = write->from;
	extent->to = write->to;
	list_move_tail(&extent->list, &disk->dirty);
	disk->dirty_count++;
	disk->dirty_bytes += bytes;
	return true;
}

static bool overlaps_dirty(struct disk *disk, struct work *read)
{
	struct work *extent;

	list_for_each_entry(extent, &disk->dirty, list)
		if (read->from < extent->to && extent->from < read->to)
			return true;
	return false;
}

/* A read that goes on where the arm does, out of its buffer or when the media have passed by: when it is there;
 * 0 if a seek is as good. */
static u64 read_ahead(struct disk *disk, struct work *read, u64 now)
{
	u64 passed = disk->head_since, full = pass(hdd_ahead_kib << 10);

	if (!disk->is_ahead || disk->current_work || read->from < disk->ahead_from ||
	    read->from > disk->head + (hdd_ahead_kib << 10))
		return 0;
	if (read->to > disk->head) {
		passed += pass(read->to - disk->head);
		if (read->from > disk->head && passed > now + reach(disk, now, read->from, false) + pass(read->to - read->from))
			return 0;
		/* The arm stopped when the buffer was full. */
		disk->head_since = now > full ? max(passed, now - full) : passed;
		disk->head = read->to;
		disk->ahead_from = read->from;
		passed = disk->head_since;
	}
	return max(passed, now);
}

static void hdd_take(struct disk *disk, struct work *work, u64 now)
{
	u64 moved = now + us(hdd_command_us) + transfer(work->to - work->from, hdd_link_mbps), there;

	switch (req_op(work->request)) {
	case REQ_OP_DISCARD:
		answer_at(work, now + us(hdd_command_us));
		return;
	case REQ_OP_FLUSH:
		list_add_tail(&work->list, &disk->flushes);
		if (!disk->dirty_count && list_empty(&disk->parked) && !(disk->current_work && !disk->current_work->request)) {
			list_del(&work->list);
			answer_at(work, now + us(hdd_command_us));
		}
		break;
	case REQ_OP_READ:
		there = overlaps_dirty(disk, work) ? now : read_ahead(disk, work, now);
		if (there)
			answer_at(work, max(there, moved));
		else
			list_add_tail(&work->list, &disk->waiting);
		break;
	default:
		if (work->request->cmd_flags & REQ_FUA)
			list_add_tail(&work->list, &disk->waiting);
		else if (list_empty(&disk->parked) && keep(disk, work))
			answer_at(work, moved);
		else
			list_add_tail(&work->list, &disk->parked);
	}
	go_on(disk, now);
}

/* The arm has done what it was at. */
static enum hrtimer_restart arm_done(struct hrtimer *timer)
{
	struct disk *disk = container_of(timer, struct disk, arm);
	struct work *done, *work, *next;
	unsigned long flags;
	LIST_HEAD(flushed);
	u64 now;

	spin_lock_irqsave(&disk->lock, flags);
	now = ktime_get_ns();
	done = disk->current_work;
	disk->current_work = NULL;
	disk->head = done->to;
	disk->head_since = now;
	disk->is_ahead = !done->writes;
	disk->ahead_from = done->from;
	if (!done->request)
		list_add(&done->list, &disk->unused);
	list_for_each_entry_safe(work, next, &disk->parked, list) {
		if (!keep(disk, work))
			break;
		list_del(&work->list);
		answer_at(work, now + us(hdd_command_us));
	}
	if (!disk->dirty_count && list_empty(&disk->parked))
		list_splice_init(&disk->flushes, &flushed);
	go_on(disk, now);
	spin_unlock_irqrestore(&disk->lock, flags);
	if (done->request)
		blk_mq_end_request(done->request, BLK_STS_OK);
	list_for_each_entry_safe(work, next, &flushed, list)
		blk_mq_end_request(work->request, BLK_STS_OK);
	return HRTIMER_NORESTART;
}

/* ---- the kernel's side ---- */

static blk_status_t take(struct blk_mq_hw_ctx *queue, const struct blk_mq_queue_data *data)
{
	struct request *request = data->rq;
	struct work *work = blk_mq_rq_to_pdu(request);
	struct disk *disk = queue->queue->queuedata;
	blk_status_t status = BLK_STS_OK;
	unsigned long flags;
	u64 now;

	blk_mq_start_request(request);
	work->request = request;
	work->writes = req_op(request) == REQ_OP_WRITE;
	work->from = blk_rq_pos(request) << SECTOR_SHIFT;
	work->to = work->from + blk_rq_bytes(request);
	spin_lock_irqsave(&disk->lock, flags);
	/* The time before the copy: a real disk has its data moved without the processor. */
	now = work->since = ktime_get_ns();
	if (req_op(request) == REQ_OP_READ || work->writes)
		status = move_data(disk, request);
	else if (req_op(request) == REQ_OP_DISCARD)
		forget_data(disk, request);
	else if (req_op(request) != REQ_OP_FLUSH)
		status = BLK_STS_NOTSUPP;
	if (status == BLK_STS_OK)
		(disk->is_hdd ? hdd_take : ssd_take)(disk, work, now);
	spin_unlock_irqrestore(&disk->lock, flags);
	return status;
}

static int prepare(struct blk_mq_tag_set *tags, struct request *request, unsigned int queue, unsigned int node)
{
	struct work *work = blk_mq_rq_to_pdu(request);

	hrtimer_init(&work->answer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS);
	work->answer.function = answer;
	return 0;
}

static const struct blk_mq_ops operations = { .queue_rq = take, .init_request = prepare };
static const struct block_device_operations nothing_else = { .owner = THIS_MODULE };

static int make(struct disk *disk, const char *name, bool is_hdd, u64 mib)
{
	struct queue_limits limits = {
		.logical_block_size = 512,
		.physical_block_size = 4096,
		.max_hw_sectors = 2560,
		.max_segments = 168,
		.max_hw_discard_sectors = 1 << 16,
		.discard_granularity = 4096,
		.features = BLK_FEAT_WRITE_CACHE | BLK_FEAT_FUA | (is_hdd ? BLK_FEAT_ROTATIONAL : 0),
	};
	int error, at;

	disk->is_hdd = is_hdd;
	spin_lock_init(&disk->lock);
	hrtimer_init(&disk->arm, CLOCK_MONOTONIC, HRTIMER_MODE_ABS);
	disk->arm.function = arm_done;
	INIT_LIST_HEAD(&disk->waiting);
	INIT_LIST_HEAD(&disk->parked);
	INIT_LIST_HEAD(&disk->flushes);
	INIT_LIST_HEAD(&disk->dirty);
	INIT_LIST_HEAD(&disk->unused);
	for (at = 0; at < EXTENTS; at++) {
		disk->extents[at].writes = true;
		list_add(&disk->extents[at].list, &disk->unused);
	}
	disk->pages = vzalloc(sizeof(*disk->pages) * (mib << (20 - PAGE_SHIFT)));
	if (!disk->pages)
		return -ENOMEM;
	disk->tags.ops = &operations;
	disk->tags.nr_hw_queues = 1;
	disk->tags.queue_depth = is_hdd ? 32 : 256;
	disk->tags.numa_node = NUMA_NO_NODE;
	disk->tags.cmd_size = sizeof(struct work);
	error = blk_mq_alloc_tag_set(&disk->tags);
	if (error)
		return error;
	disk->gendisk = blk_mq_alloc_disk(&disk->tags, &limits, disk);
	if (IS_ERR(disk->gendisk))
		return PTR_ERR(disk->gendisk);
	disk->gendisk->flags |= GENHD_FL_NO_PART;
	disk->gendisk->fops = &nothing_else;
	strscpy(disk->gendisk->disk_name, name, DISK_NAME_LEN);
	set_capacity(disk->gendisk, mib << (20 - SECTOR_SHIFT));
	return add_disk(disk->gendisk);
}

/* There is no way out, and a failure is not cleaned up after: the guest is thrown away. */
static int __init start(void)
{
	int error = ssd_servers < 1 || ssd_servers > SERVERS_MAX ? -EINVAL : make(&hdd, "model-hdd", true, hdd_mib);

	return error ? error : make(&ssd, "model-ssd", false, ssd_mib);
}
module_init(start);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("A modelled hard disk and a modelled SSD");
