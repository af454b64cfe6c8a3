"""The durable record of what each dataset has spent, over all runs.

>>> import tempfile
>>> from understudy.privacy.guarantee import Budget
>>> from understudy.privacy.unit import Unit
>>> folder = tempfile.TemporaryDirectory()
>>> with Ledger.create(folder.name + "/ledger.sqlite") as ledger:
...     dataset = ledger.open_dataset("clinic", cap=Budget(3, "1e-6"), unit=Unit("record"))
...     print(dataset.cap, ledger.spent("clinic"))
(epsilon=3, delta=1e-06) None
>>> folder.cleanup()

Importing this package loads SQLAlchemy: the command line imports it inside its commands.
"""

from understudy.ledger.ledger import Ledger
from understudy.ledger.location import default_location
from understudy.ledger.values import Balance, Dataset, Entry

__all__ = ["Balance", "Dataset", "Entry", "Ledger", "default_location"]
