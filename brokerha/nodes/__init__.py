"""SHELLS: the runner and what one process holds.

building.py      a node from the cluster file: opens data, connects, composes
serving.py       one node in the foreground, until a signal
loop.py          the thread of a node, and calls that others hand in
runner.py        turn() of a master: receive, step, log, send, answer; used by production and by the simulator
worker_runner.py turn() of a worker
address_book.py  which process acts for a master, and a transport that sends there
timetable.py     when what is due
clock.py         the only real clock

master_node.py   a master: core, journal, transport, front
process_node.py  a process of a master with backups: a master while it is primary, else a standby
process_runner.py   its turn, and the change from one to the other
journal_copying.py  its journal as a whole: snapshots, chunks, loads
transacting.py   transactions step by step (taking.py: messages; transaction_arguments.py: what steps take)
commands.py      operators' commands on their way through the loop
orders.py        operators' orders to single processes of a master: promote, pause, coin, continue
tickets.py       who gets the reply of which write
lanes.py         work on messages that has to stay in order, some of it in threads
checking.py      what is checked of a write or a read before it is taken in
master_view.py   what a master shows of itself
cpu_times.py     processor time by what threads are for
rates.py         how busy it was within the last hour, for the charts of the status page
watching.py      what it tells unasked: after a while, not after each turn
site_log.py      what happens at a site, as lines in the log of its master
status.py        the status of the whole cluster
journal_lines.py lines of the log as a store can apply them, from a journal
reading.py       reads of a master: futures on one side, messages on the other
  reads_routing.py   where each read goes, goes next, goes too (reads_queue.py: in which order; reads_patience.py: when)
amqp_front.py    writes, reads and questions that apps publish
change_log.py    what is told to followers outside, made from the journal

worker_node.py   a worker: core, store, transport, reads
copy_threads.py  the threads in which its copy is worked on
work_thread.py   a thread that does one piece of work after the other
copying.py       what its core decides about the copy as a whole: snapshots, chunks, loads
load_watch.py    how long each part of a load took
tasks.py         long work that its master gives to it
scrubbing.py     the background scrub: when it looks at all of its data
guarding.py      what must not go on: memory that grows, reads and writes that never end
read_pool.py     reads of a worker, in threads that may be given up (read_book.py: what waits, runs, is stuck)
read_answers.py  ... and on their way back
restoring.py     directories of nodes made from a backup

config.py        the cluster file
  config_file.py         its text, and the place of each value
  config_keys.py         what a key is, and how a table of keys is read off a dataclass
  config_nodes.py        keys of nodes
  config_process.py      ... of the processes of a master
  config_site.py         ... of sites: workers, copies, backups, the log
  config_reads.py        ... of reads
  config_environment.py  the environment laid over it
  config_rules.py        what must hold between values
  config_page.py         its reference page
  config_added.py        a worker that is not in it
"""
