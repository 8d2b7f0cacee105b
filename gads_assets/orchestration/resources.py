"""The workplace and Spark, as Dagster resources."""

import os
from contextlib import ExitStack

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field, PrivateAttr
from pyspark.sql import SparkSession

from gads_assets.orchestration.workplace import Workplace, open_session
from gads_assets.settings import read_settings


class SparkResource(LazyPySparkResource):
    """A session for the run, started by the first step that uses it: tuned and local, or a Spark Connect server's."""

    spark_config: dict[str, str] = Field(default_factory=dict)

    def _init_session(self) -> None:
        if self._spark_session is None:
            self._spark_session = open_session(read_settings(os.environ))

    def session(self) -> SparkSession:
        session: SparkSession = self.spark_session
        return session

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        if self._spark_session is not None:
            self._spark_session.stop()
            self._spark_session = None


class WorkplaceResource(dg.ConfigurableResource[Workplace]):
    """The parts of the pipeline, as the environment sets them; nothing starts before a step asks for it."""

    spark: dg.ResourceDependency[SparkResource]
    _workplace: Workplace = PrivateAttr()
    _open: ExitStack = PrivateAttr()

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        self._open = ExitStack()
        # Dagster writes a run's last events, to the same database, after the resources were put away.
        workplace = Workplace(read_settings(os.environ), session=self.spark.session, outlived_by_database=True)
        self._workplace = self._open.enter_context(workplace)

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        self._open.close()

    def get(self) -> Workplace:
        return self._workplace
